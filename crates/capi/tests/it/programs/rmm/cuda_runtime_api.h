/* As much of the CUDA runtime as the adaptor for RMM uses. */
#pragma once
typedef struct stream *cudaStream_t;
enum cudaError { cudaSuccess = 0 };
inline cudaError cudaGetDevice(int *device) { *device = 3; return cudaSuccess; }
