//! The functions of the driver that allocate, free, map or end contexts: their names, their numbers in CUPTI, and what
//! they do.
//!
//! CUPTI gives a function's arguments as a structure with a field for each. On the 64-bit systems of this library every
//! such field of these functions takes eight bytes, so arguments are the words of an array in either way of seeing calls.
//! Functions of the first 32-bit interface (`cuMemAlloc` without `_v2`) are left out: they cannot address the memory of
//! today's devices.

use std::ffi::CStr;

/// What a function does, and where its arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// `(place, bytes)`: device memory.
    Device,
    /// `(place, pitch place, width, height, element)`.
    Pitched,
    /// `(place, bytes, flags)`.
    Managed,
    /// `(place, bytes)`: page-locked host memory.
    Pinned,
    /// `(address, bytes, flags)`: memory of the program that becomes page-locked.
    Register,
    /// `(place, bytes, stream)`.
    Async,
    /// `(place, bytes, pool, stream)`.
    FromPool,
    /// `(address)`.
    Free,
    /// `(address, stream)`.
    FreeAsync,
    /// `(place, bytes, properties, flags)`: physical memory.
    Create,
    /// `(handle)`.
    Release,
    /// `(handle place, address)`.
    Retain,
    /// `(handle place, ...)`: physical memory of another process.
    Import,
    /// `(address, bytes, offset, handle, flags)`.
    Map,
    /// `(address, bytes)`.
    Unmap,
    /// `(place, bytes, ...)`.
    Reserve,
    /// `(place, description)`, of two dimensions.
    Array,
    /// `(place, description)`, of three dimensions.
    Array3d,
    /// `(place, description, levels)`.
    Mipmap,
    /// `(node place, graph, dependencies, count, parameters)`.
    GraphAlloc,
    /// As before with parameters of any node; `(..., count, parameters)` at these places.
    GraphNode { parameters: usize },
    /// `(graph)`.
    GraphDestroy,
    /// `(place, handle by value, flags)`: memory of another process.
    IpcOpen,
    /// `(place, pool, data)`: a block of another process's pool.
    PoolImport,
    /// `(place, external memory, description)`.
    ExternalBuffer,
    /// `(context)`.
    ContextDestroy,
    /// `(context place, device)`.
    PrimaryRetain,
    /// `(device)`.
    PrimaryRelease,
    /// `(device)`.
    PrimaryReset,
    /// `(pool place, properties)`.
    PoolCreate,
    /// `(pool, bytes to keep)`.
    PoolTrim,
    /// `(pool)`.
    PoolDestroy,
}

/// A function of the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// As the driver exports it.
    pub(super) name: &'static CStr,
    /// Without its version: what programs ask `cuGetProcAddress` for, and the resource of its blocks.
    pub(super) base: &'static str,
    /// Its number in CUPTI.
    pub(super) cbid: u32,
    pub(super) act: Act,
}

/// Defines the list, and functions of these names that take the place of the driver's: see `interpose`.
macro_rules! calls {
    ($($index:literal $name:ident $text:literal $base:literal $cbid:literal $act:expr;)*) => {
        /// All of them, by index.
        pub(super) const CALLS: &[Call] = &[$(Call { name: $text, base: $base, cbid: $cbid, act: $act },)*];

        /// The functions that take the place of those of the same index.
        #[cfg(target_arch = "x86_64")]
        pub(super) static ENTRIES: &[unsafe extern "C" fn()] = &[$(entries::$name,)*];

        #[cfg(target_arch = "x86_64")]
        mod entries {
            $(
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub(super) unsafe extern "C" fn $name() {
                    std::arch::naked_asm!("mov eax, {}", "jmp floodmark_inject_cuda_call", const $index)
                }
            )*
        }
    };
}

calls! {
    0 cuMemAlloc_v2 c"cuMemAlloc_v2" "cuMemAlloc" 243 Act::Device;
    1 cuMemAllocPitch_v2 c"cuMemAllocPitch_v2" "cuMemAllocPitch" 244 Act::Pitched;
    2 cuMemFree_v2 c"cuMemFree_v2" "cuMemFree" 245 Act::Free;
    3 cuMemAllocHost_v2 c"cuMemAllocHost_v2" "cuMemAllocHost" 294 Act::Pinned;
    4 cuMemHostAlloc c"cuMemHostAlloc" "cuMemHostAlloc" 39 Act::Pinned;
    5 cuMemHostAlloc_v2 c"cuMemHostAlloc_v2" "cuMemHostAlloc" 271 Act::Pinned;
    6 cuMemFreeHost c"cuMemFreeHost" "cuMemFreeHost" 38 Act::Free;
    7 cuMemHostRegister c"cuMemHostRegister" "cuMemHostRegister" 301 Act::Register;
    8 cuMemHostRegister_v2 c"cuMemHostRegister_v2" "cuMemHostRegister" 379 Act::Register;
    9 cuMemHostUnregister c"cuMemHostUnregister" "cuMemHostUnregister" 302 Act::Free;
    10 cuMemAllocManaged c"cuMemAllocManaged" "cuMemAllocManaged" 371 Act::Managed;
    11 cuMemAllocAsync c"cuMemAllocAsync" "cuMemAllocAsync" 598 Act::Async;
    12 cuMemAllocAsync_ptsz c"cuMemAllocAsync_ptsz" "cuMemAllocAsync" 599 Act::Async;
    13 cuMemFreeAsync c"cuMemFreeAsync" "cuMemFreeAsync" 600 Act::FreeAsync;
    14 cuMemFreeAsync_ptsz c"cuMemFreeAsync_ptsz" "cuMemFreeAsync" 601 Act::FreeAsync;
    15 cuMemAllocFromPoolAsync c"cuMemAllocFromPoolAsync" "cuMemAllocFromPoolAsync" 611 Act::FromPool;
    16 cuMemAllocFromPoolAsync_ptsz c"cuMemAllocFromPoolAsync_ptsz" "cuMemAllocFromPoolAsync" 612 Act::FromPool;
    17 cuMemCreate c"cuMemCreate" "cuMemCreate" 549 Act::Create;
    18 cuMemRelease c"cuMemRelease" "cuMemRelease" 550 Act::Release;
    19 cuMemRetainAllocationHandle c"cuMemRetainAllocationHandle" "cuMemRetainAllocationHandle" 565 Act::Retain;
    20 cuMemImportFromShareableHandle c"cuMemImportFromShareableHandle" "cuMemImportFromShareableHandle" 555 Act::Import;
    21 cuMemMap c"cuMemMap" "cuMemMap" 551 Act::Map;
    22 cuMemUnmap c"cuMemUnmap" "cuMemUnmap" 552 Act::Unmap;
    23 cuMemAddressReserve c"cuMemAddressReserve" "cuMemAddressReserve" 547 Act::Reserve;
    24 cuMemAddressFree c"cuMemAddressFree" "cuMemAddressFree" 548 Act::Free;
    25 cuArrayCreate_v2 c"cuArrayCreate_v2" "cuArrayCreate" 272 Act::Array;
    26 cuArray3DCreate_v2 c"cuArray3DCreate_v2" "cuArray3DCreate" 274 Act::Array3d;
    27 cuArrayDestroy c"cuArrayDestroy" "cuArrayDestroy" 89 Act::Free;
    28 cuMipmappedArrayCreate c"cuMipmappedArrayCreate" "cuMipmappedArrayCreate" 347 Act::Mipmap;
    29 cuMipmappedArrayDestroy c"cuMipmappedArrayDestroy" "cuMipmappedArrayDestroy" 349 Act::Free;
    30 cuGraphAddMemAllocNode c"cuGraphAddMemAllocNode" "cuGraphAddMemAllocNode" 638 Act::GraphAlloc;
    31 cuGraphAddNode c"cuGraphAddNode" "cuGraphAddNode" 712 Act::GraphNode { parameters: 4 };
    32 cuGraphAddNode_v2 c"cuGraphAddNode_v2" "cuGraphAddNode" 723 Act::GraphNode { parameters: 5 };
    33 cuGraphDestroy c"cuGraphDestroy" "cuGraphDestroy" 517 Act::GraphDestroy;
    34 cuIpcOpenMemHandle c"cuIpcOpenMemHandle" "cuIpcOpenMemHandle" 329 Act::IpcOpen;
    35 cuIpcOpenMemHandle_v2 c"cuIpcOpenMemHandle_v2" "cuIpcOpenMemHandle" 567 Act::IpcOpen;
    36 cuIpcCloseMemHandle c"cuIpcCloseMemHandle" "cuIpcCloseMemHandle" 330 Act::Free;
    37 cuMemPoolImportPointer c"cuMemPoolImportPointer" "cuMemPoolImportPointer" 616 Act::PoolImport;
    38 cuExternalMemoryGetMappedBuffer c"cuExternalMemoryGetMappedBuffer" "cuExternalMemoryGetMappedBuffer" 486 Act::ExternalBuffer;
    39 cuCtxDestroy_v2 c"cuCtxDestroy_v2" "cuCtxDestroy" 322 Act::ContextDestroy;
    40 cuDevicePrimaryCtxRetain c"cuDevicePrimaryCtxRetain" "cuDevicePrimaryCtxRetain" 386 Act::PrimaryRetain;
    41 cuDevicePrimaryCtxRelease c"cuDevicePrimaryCtxRelease" "cuDevicePrimaryCtxRelease" 387 Act::PrimaryRelease;
    42 cuDevicePrimaryCtxRelease_v2 c"cuDevicePrimaryCtxRelease_v2" "cuDevicePrimaryCtxRelease" 544 Act::PrimaryRelease;
    43 cuDevicePrimaryCtxReset c"cuDevicePrimaryCtxReset" "cuDevicePrimaryCtxReset" 389 Act::PrimaryReset;
    44 cuDevicePrimaryCtxReset_v2 c"cuDevicePrimaryCtxReset_v2" "cuDevicePrimaryCtxReset" 545 Act::PrimaryReset;
    45 cuMemPoolCreate c"cuMemPoolCreate" "cuMemPoolCreate" 607 Act::PoolCreate;
    46 cuMemPoolTrimTo c"cuMemPoolTrimTo" "cuMemPoolTrimTo" 602 Act::PoolTrim;
    47 cuMemPoolDestroy c"cuMemPoolDestroy" "cuMemPoolDestroy" 608 Act::PoolDestroy;
}

/// Index of the function with this number in CUPTI.
#[inline]
pub(super) fn index_of(cbid: u32) -> Option<usize> {
    const NONE: u8 = u8::MAX;
    const MOST: usize = 1024;
    const INDEXES: [u8; MOST] = {
        let mut indexes = [NONE; MOST];
        let mut at = 0;
        while at < CALLS.len() {
            indexes[CALLS[at].cbid as usize] = at as u8;
            at += 1;
        }
        indexes
    };
    static TABLE: [u8; MOST] = INDEXES;
    TABLE.get(cbid as usize).filter(|index| **index != NONE).map(|index| usize::from(*index))
}
