// cuBLAS, rejected by name.
#pragma once
#include "cublas_v2.h"
