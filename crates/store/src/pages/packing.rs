//! Encodings of Parquet that pages of events use: numbers in few bits, runs, and packed differences.

/// Values of a block of packed differences, and of each of the parts that have a width of their own.
const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// Appends a number, seven bits a byte.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_zigzag(out: &mut Vec<u8>, value: i64) {
    put_varint(out, (value << 1 ^ value >> 63) as u64);
}

/// Returns how many bits `value` needs.
pub(super) fn bit_width(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// Appends numbers of `width` bits each, the lowest bits first. The last byte is filled with zeros.
pub(super) fn pack(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = u64>, width: u32) {
    let start = out.len();
    let bytes = (values.len() * width as usize).div_ceil(8);
    // Words are stored whole, and the last one may reach beyond the end.
    out.resize(start + bytes + 8, 0);
    let (mut word, mut bits, mut at) = (0u64, 0, start);
    for value in values {
        word |= value << bits;
        bits += width;
        if bits >= u64::BITS {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
            at += 8;
            bits -= u64::BITS;
            word = value.unbounded_shr(width - bits);
        }
    }
    if bits > 0 {
        out[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    out.truncate(start + bytes);
}

/// Appends `count` times the same number of `width` bits, in Parquet's hybrid encoding.
pub(super) fn put_run(out: &mut Vec<u8>, value: u64, count: usize, width: u32) {
    put_varint(out, (count as u64) << 1);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(8) as usize]);
}

/// Appends the head of packed numbers in Parquet's hybrid encoding; they are filled up to a multiple of eight.
pub(super) fn put_packed_head(out: &mut Vec<u8>, count: usize) {
    put_varint(out, (count.div_ceil(8) as u64) << 1 | 1);
}

/// Packs the differences between numbers, as Parquet's `DELTA_BINARY_PACKED` has them.
#[derive(Debug)]
pub(super) struct Deltas {
    first: i64,
    previous: i64,
    count: usize,
    /// Differences that do not fill a block yet.
    block: [i64; BLOCK],
    len: usize,
    blocks: Vec<u8>,
}

impl Default for Deltas {
    fn default() -> Self {
        Self { first: 0, previous: 0, count: 0, block: [0; BLOCK], len: 0, blocks: Vec::new() }
    }
}

impl Deltas {
    /// Appends numbers.
    pub(super) fn push(&mut self, values: &[u64]) {
        let mut rest = values;
        if self.count == 0
            && let Some((first, others)) = values.split_first()
        {
            (self.first, self.previous) = (*first as i64, *first as i64);
            rest = others;
        }
        self.count += values.len();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK - self.len));
            let block = &mut self.block[self.len..self.len + now.len()];
            block[0] = (now[0] as i64).wrapping_sub(self.previous);
            for (difference, pair) in block[1..].iter_mut().zip(now.windows(2)) {
                *difference = pair[1].wrapping_sub(pair[0]) as i64;
            }
            self.previous = now[now.len() - 1] as i64;
            self.len += now.len();
            if self.len == BLOCK {
                self.end_block();
            }
            rest = later;
        }
    }

    fn end_block(&mut self) {
        let used = &mut self.block[..self.len];
        let least = used.iter().copied().fold(i64::MAX, i64::min);
        put_zigzag(&mut self.blocks, least);
        for difference in used {
            *difference = difference.wrapping_sub(least);
        }
        // A part is always whole, filled with zeros.
        self.block[self.len..].fill(0);
        let widths = self.blocks.len();
        self.blocks.extend_from_slice(&[0; BLOCK / MINIBLOCK]);
        for (part, values) in self.block[..self.len.next_multiple_of(MINIBLOCK)].chunks(MINIBLOCK).enumerate()
        {
            let width = bit_width(values.iter().fold(0, |all, value| all | *value as u64));
            self.blocks[widths + part] = width as u8;
            pack(&mut self.blocks, values.iter().map(|value| *value as u64), width);
        }
        self.len = 0;
    }

    /// Appends everything to `out` and starts anew.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        if self.len > 0 {
            self.end_block();
        }
        put_varint(out, BLOCK as u64);
        put_varint(out, (BLOCK / MINIBLOCK) as u64);
        put_varint(out, self.count as u64);
        put_zigzag(out, self.first);
        out.extend_from_slice(&self.blocks);
        self.blocks.clear();
        self.count = 0;
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len()
    }
}
