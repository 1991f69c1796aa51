//! Structures of the driver's interface that arguments point to. Their layouts are the same since they exist.

use floodmark_event::NO_DEVICE;

/// Reads a word of a structure; none if there is no structure.
fn word(structure: u64, offset: usize) -> Option<u64> {
    let place = structure.wrapping_add(offset as u64) as usize as *const u64;
    // SAFETY: callers name the structures that the driver's interface has at these arguments, and the driver has read it.
    (structure != 0).then(|| unsafe { place.read_unaligned() })
}

/// Reads a number of 32 bits of a structure.
fn number(structure: u64, offset: usize) -> Option<u32> {
    word(structure, offset).map(|word| word as u32)
}

/// Bytes of a component of an array's elements; formats that pack several components count as what they take on average.
fn format_bytes(format: u32) -> u64 {
    match format {
        // 8 bits, signed or not, integers or fractions.
        0x01 | 0x08 | 0xc0..=0xc5 => 1,
        0x03 | 0x0a | 0x20 => 4,
        // 16 bits; what is not known has no better guess.
        _ => 2,
    }
}

/// Bytes of an array of two dimensions: width, height, format and number of channels.
pub(super) fn array_bytes(description: u64) -> u64 {
    let read = || {
        let elements = word(description, 0)?.saturating_mul(word(description, 8)?.max(1));
        Some(elements.saturating_mul(element_bytes(number(description, 16)?, number(description, 20)?)))
    };
    read().unwrap_or(0)
}

fn element_bytes(format: u32, channels: u32) -> u64 {
    format_bytes(format) * u64::from(channels.clamp(1, 4))
}

/// Width, height, depth and bytes of an element of an array of three dimensions.
fn array3d(description: u64) -> Option<([u64; 3], u64)> {
    let size = [word(description, 0)?, word(description, 8)?, word(description, 16)?];
    Some((size, element_bytes(number(description, 24)?, number(description, 28)?)))
}

fn volume(size: [u64; 3], element: u64) -> u64 {
    size.iter().fold(element, |bytes, side| bytes.saturating_mul((*side).max(1)))
}

/// Bytes of an array of three dimensions.
pub(super) fn array3d_bytes(description: u64) -> u64 {
    array3d(description).map_or(0, |(size, element)| volume(size, element))
}

/// Bytes of an array with so many levels, each half as wide, high and deep as the one before.
pub(super) fn mipmap_bytes(description: u64, levels: u32) -> u64 {
    let Some((size, element)) = array3d(description) else { return 0 };
    let level = |level: u32| volume(size.map(|side| side >> level), element);
    (0..levels.min(64)).fold(0, |sum, number| sum.saturating_add(level(number)))
}

/// Type of a location that is a device.
const DEVICE_LOCATION: u32 = 1;

/// The device of a location; [`NO_DEVICE`] for memory of the host.
fn location(structure: u64, offset: usize) -> Option<i32> {
    let device = number(structure, offset + 4)? as i32;
    Some(if number(structure, offset)? == DEVICE_LOCATION { device } else { NO_DEVICE })
}

/// The device of physical memory by its properties.
pub(super) fn create_device(properties: u64) -> Option<i32> {
    location(properties, 8)
}

/// The device of a pool by its properties.
pub(super) fn pool_device(properties: u64) -> i32 {
    location(properties, 8).unwrap_or(NO_DEVICE)
}

/// Address, bytes and device of a node that allocates.
pub(super) fn graph_alloc(parameters: u64) -> Option<(u64, u64, i32)> {
    Some((word(parameters, 112)?, word(parameters, 104)?, location(parameters, 8)?))
}

/// The same for parameters of any node; none if it does not allocate.
pub(super) fn graph_node(parameters: u64) -> Option<(u64, u64, i32)> {
    const ALLOCATES: u32 = 10;
    (number(parameters, 0)? == ALLOCATES).then(|| graph_alloc(parameters + 16))?
}

/// Bytes of a mapped buffer of memory of another API.
pub(super) fn external_bytes(description: u64) -> u64 {
    word(description, 8).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_have_the_bytes_of_their_elements() {
        let address = |words: &[u64]| words.as_ptr().addr() as u64;
        // 100 times 10 elements of four floats.
        let flat = [100_u64, 10, 0x20 | 4 << 32];
        assert_eq!(array_bytes(address(&flat)), 100 * 10 * 16);
        let line = [100_u64, 0, 1 | 1 << 32];
        assert_eq!(array_bytes(address(&line)), 100);
        let cube = [8_u64, 8, 8, 0x10 | 2 << 32, 0];
        assert_eq!(array3d_bytes(address(&cube)), 8 * 8 * 8 * 4);
        assert_eq!(mipmap_bytes(address(&cube), 4), (512 + 64 + 8 + 1) * 4);
        let huge = [u64::MAX, u64::MAX, u64::MAX, 0x20 | 4 << 32, 0];
        assert_eq!(mipmap_bytes(address(&huge), u32::MAX), u64::MAX);
        assert_eq!((array_bytes(0), array3d_bytes(0), mipmap_bytes(0, 3)), (0, 0, 0));
        assert_eq!(graph_node(0), None);
    }
}
