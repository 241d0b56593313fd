// Between the parts of the stand-in runtime.
#pragma once
#include <cuda_runtime_api.h>

#include "state.hpp"

namespace host {

cudaError_t fail(cudaError_t code);  // remembers the code for cudaGetLastError, and returns it
cudaError_t take_last_error();
cudaError_t peek_last_error();
cudaError_t launch_kernel(const void* function, dim3 grid, dim3 block, void** arguments,
                          size_t shared, cudaStream_t stream, bool cooperative);
cudaError_t device_malloc(void** pointer, size_t size);
cudaError_t device_free(void* pointer);
cudaError_t transfer(void* to, const void* from, size_t size, cudaMemcpyKind kind);
cudaError_t upload(uint64_t to, const void* from, size_t size);
cudaError_t fill(void* at, int value, size_t size);
cudaError_t synchronize();
Kernel* find_kernel(const void* function);
const Symbol* find_symbol(const void* variable);
bool is_device(const void* pointer);
void note_device_memory(const void* pointer, size_t size);

}  // namespace host
