// Forwards to the small torch headers.
#pragma once
#include <torch/extension.h>
