/* The part of the CUDA driver's interface that the tests use, written after its documentation. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr, CUmemGenericAllocationHandle;
typedef struct ctx *CUcontext;
typedef struct stream *CUstream;
typedef struct pool *CUmemoryPool;
typedef struct array *CUarray;
typedef struct graph *CUgraph;
typedef struct node *CUgraphNode;
typedef struct { int type, id; } Location;
typedef struct { int type, handle_types; Location location; void *win32; uint16_t flags[4]; } CUmemAllocationProp;
typedef struct { int type, handle_types; Location location; void *win32; size_t max; uint16_t usage; unsigned char reserved[54]; } CUmemPoolProps;
typedef struct { CUmemPoolProps pool; const void *access; size_t access_count, bytesize; CUdeviceptr dptr; } AllocNode;
typedef struct { size_t width, height; unsigned format, channels; } ArrayDescriptor;
typedef struct { size_t width, height, depth; unsigned format, channels, flags; } Array3dDescriptor;
typedef struct { unsigned char bytes[64]; } CUipcMemHandle;
typedef struct { unsigned char bytes[16]; } CUuuid;

#define FUNCTIONS(X) \
  X(cuInit, cuInit, (unsigned flags)) \
  X(cuDriverGetVersion, cuDriverGetVersion, (int *version)) \
  X(cuDeviceGetUuid, cuDeviceGetUuid, (CUuuid *uuid, CUdevice device)) \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *ctx, CUdevice device)) \
  X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, (CUdevice device)) \
  X(cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset, (CUdevice device)) \
  X(cuCtxCreate_v2, cuCtxCreate, (CUcontext *ctx, unsigned flags, CUdevice device)) \
  X(cuCtxDestroy_v2, cuCtxDestroy, (CUcontext ctx)) \
  X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext ctx)) \
  X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext *ctx)) \
  X(cuCtxGetDevice, cuCtxGetDevice, (CUdevice *device)) \
  X(cuMemGetInfo_v2, cuMemGetInfo, (size_t *free, size_t *total)) \
  X(cuMemGetAddressRange_v2, cuMemGetAddressRange, (CUdeviceptr *base, size_t *bytes, CUdeviceptr at)) \
  X(cuMemAlloc_v2, cuMemAlloc, (CUdeviceptr *dptr, size_t bytes)) \
  X(cuMemAllocPitch_v2, cuMemAllocPitch, (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height, unsigned element)) \
  X(cuMemFree_v2, cuMemFree, (CUdeviceptr dptr)) \
  X(cuMemAllocManaged, cuMemAllocManaged, (CUdeviceptr *dptr, size_t bytes, unsigned flags)) \
  X(cuMemAllocHost_v2, cuMemAllocHost, (void **p, size_t bytes)) \
  X(cuMemHostAlloc, cuMemHostAlloc, (void **p, size_t bytes, unsigned flags)) \
  X(cuMemFreeHost, cuMemFreeHost, (void *p)) \
  X(cuMemHostRegister_v2, cuMemHostRegister, (void *p, size_t bytes, unsigned flags)) \
  X(cuMemHostUnregister, cuMemHostUnregister, (void *p)) \
  X(cuMemAllocAsync, cuMemAllocAsync, (CUdeviceptr *dptr, size_t bytes, CUstream stream)) \
  X(cuMemFreeAsync, cuMemFreeAsync, (CUdeviceptr dptr, CUstream stream)) \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)) \
  X(cuMemPoolCreate, cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *props)) \
  X(cuMemPoolDestroy, cuMemPoolDestroy, (CUmemoryPool pool)) \
  X(cuMemPoolTrimTo, cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep)) \
  X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, (CUmemoryPool pool, int attribute, void *value)) \
  X(cuDeviceGetMemPool, cuDeviceGetMemPool, (CUmemoryPool *pool, CUdevice device)) \
  X(cuMemCreate, cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags)) \
  X(cuMemRelease, cuMemRelease, (CUmemGenericAllocationHandle handle)) \
  X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle *handle, void *address)) \
  X(cuMemAddressReserve, cuMemAddressReserve, (CUdeviceptr *dptr, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags)) \
  X(cuMemAddressFree, cuMemAddressFree, (CUdeviceptr dptr, size_t bytes)) \
  X(cuMemMap, cuMemMap, (CUdeviceptr dptr, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)) \
  X(cuMemUnmap, cuMemUnmap, (CUdeviceptr dptr, size_t bytes)) \
  X(cuArrayCreate_v2, cuArrayCreate, (CUarray *array, const ArrayDescriptor *descriptor)) \
  X(cuArray3DCreate_v2, cuArray3DCreate, (CUarray *array, const Array3dDescriptor *descriptor)) \
  X(cuArrayDestroy, cuArrayDestroy, (CUarray array)) \
  X(cuGraphCreate, cuGraphCreate, (CUgraph *graph, unsigned flags)) \
  X(cuGraphDestroy, cuGraphDestroy, (CUgraph graph)) \
  X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, AllocNode *params)) \
  X(cuIpcGetMemHandle, cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr dptr)) \
  X(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle, (CUdeviceptr *dptr, CUipcMemHandle handle, unsigned flags)) \
  X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (CUdeviceptr dptr))

#define DECLARE(name, base, arguments) CUresult name arguments;
FUNCTIONS(DECLARE)
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status);
