//! Blocks that tests take and give.
#![expect(unsafe_code, reason = "gives back what it took")]

use floodmark_resource::{Address, Resource, Result, Stream};

pub(crate) const MIB: u64 = 1 << 20;

/// A block as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: Address,
    pub(crate) bytes: u64,
    pub(crate) stream: Stream,
}

pub(crate) fn try_take(resource: &dyn Resource, bytes: u64) -> Result<Block> {
    let stream = Stream::DEFAULT;
    resource.allocate(bytes, 256, stream).map(|address| Block { address, bytes, stream })
}

pub(crate) fn take(resource: &dyn Resource, bytes: u64) -> Block {
    try_take(resource, bytes).expect("there is room")
}

pub(crate) fn take_on(resource: &dyn Resource, bytes: u64, stream: Stream) -> Block {
    let address = resource.allocate(bytes, 256, stream).expect("there is room");
    Block { address, bytes, stream }
}

pub(crate) fn give(resource: &dyn Resource, block: Block) {
    // SAFETY: tests give back each block once, and use none of them.
    unsafe { resource.deallocate(block.address, block.bytes, 256, block.stream) };
}

pub(crate) fn give_all(resource: &dyn Resource, blocks: impl IntoIterator<Item = Block>) {
    blocks.into_iter().for_each(|block| give(resource, block));
}
