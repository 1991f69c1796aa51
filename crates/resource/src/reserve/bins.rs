//! Free blocks by size, so that one that fits is found in a few instructions however many there are.
//!
//! Sizes are counted in granules. Each power of two is a row, divided into sixteen cells; a cell is a
//! list of blocks that differ in size by less than a sixteenth. Bitmaps show which cells hold any.
//! The lists run through the block records, which the heap owns.

/// No block.
pub(super) const NONE: u32 = u32::MAX;

const COLUMNS: usize = 16;
/// Rows for every size that a 64-bit address space can have.
const ROWS: usize = 54;

/// Lists of free blocks that may be used under the same condition.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    /// Bitmap of rows that have a cell with blocks.
    rows: u64,
    /// Bitmap of cells with blocks, by row.
    cells: [u16; ROWS],
    heads: [u32; ROWS * COLUMNS],
    /// Number of free blocks.
    pub(super) blocks: u64,
    /// Size of all free blocks in bytes.
    pub(super) bytes: u64,
}

/// A list of blocks of nearly the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell(u16);

impl Cell {
    /// The cell of a block of this many granules.
    #[inline]
    pub(super) const fn of(granules: u64) -> Self {
        if granules < COLUMNS as u64 {
            return Self(granules as u16);
        }
        let log = granules.ilog2();
        let column = (granules >> (log - 4)) as u16 & (COLUMNS as u16 - 1);
        Self(((log - 3) as u16) << 4 | column)
    }

    /// The first cell whose blocks all have at least this many granules; none beyond the largest size.
    #[inline]
    const fn all_fit(granules: u64) -> Option<Self> {
        if granules < 2 * COLUMNS as u64 {
            return Some(Self::of(granules)); // cells of one size
        }
        let step = 1 << (granules.ilog2() - 4);
        match granules.checked_add(step - 1) {
            Some(up) if up.ilog2() < 56 => Some(Self::of(up)),
            _ => None,
        }
    }

    /// Index among all cells.
    #[inline]
    pub(super) const fn number(self) -> usize {
        self.0 as usize
    }

    /// Smallest size that is at least this many granules and the smallest of its cell.
    #[inline]
    pub(super) const fn rounded(granules: u64) -> u64 {
        if granules < 2 * COLUMNS as u64 {
            return granules; // cells of one size
        }
        let step = 1 << (granules.ilog2() - 4);
        (granules + step - 1) & !(step - 1)
    }

    #[inline]
    const fn row(self) -> usize {
        (self.0 >> 4) as usize
    }

    #[inline]
    const fn column(self) -> usize {
        self.0 as usize & (COLUMNS - 1)
    }
}

impl Bins {
    pub(super) fn new() -> Self {
        Self { rows: 0, cells: [0; ROWS], heads: [NONE; ROWS * COLUMNS], blocks: 0, bytes: 0 }
    }

    /// First block of a cell.
    #[inline]
    pub(super) fn head(&self, cell: Cell) -> u32 {
        self.heads[cell.0 as usize]
    }

    /// Makes `block` the first of a cell.
    #[inline]
    pub(super) fn set_head(&mut self, cell: Cell, block: u32) {
        self.heads[cell.0 as usize] = block;
        let (row, column) = (cell.row(), cell.column());
        if block == NONE {
            self.cells[row] &= !(1 << column);
            if self.cells[row] == 0 {
                self.rows &= !(1 << row);
            }
        } else {
            self.cells[row] |= 1 << column;
            self.rows |= 1 << row;
        }
    }

    /// The smallest cell with blocks that all have at least this many granules.
    #[inline]
    pub(super) fn fitting(&self, granules: u64) -> Option<Cell> {
        let from = Cell::all_fit(granules)?;
        let row = from.row();
        let here = self.cells[row] & (u16::MAX << from.column());
        if here != 0 {
            return Some(Self::cell(row, here));
        }
        let above = self.rows & u64::MAX.checked_shl(row as u32 + 1).unwrap_or(0);
        if above == 0 {
            return None;
        }
        let row = above.trailing_zeros() as usize;
        Some(Self::cell(row, self.cells[row]))
    }

    /// The cell with the largest blocks.
    pub(super) fn last(&self) -> Option<Cell> {
        let row = self.rows.checked_ilog2()? as usize;
        let column = self.cells[row].ilog2() as u16;
        Some(Cell((row as u16) << 4 | column))
    }

    /// All cells with blocks.
    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> + '_ {
        (0..(ROWS * COLUMNS) as u16).map(Cell).filter(|cell| self.head(*cell) != NONE)
    }

    #[inline]
    const fn cell(row: usize, columns: u16) -> Cell {
        Cell((row as u16) << 4 | columns.trailing_zeros() as u16)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_fitting_cell_holds_nothing_smaller(granules in 1_u64..1 << 40, block in 1_u64..1 << 40) {
            let mut bins = Bins::new();
            bins.set_head(Cell::of(block), 7);
            match bins.fitting(granules) {
                Some(cell) => {
                    prop_assert_eq!(cell, Cell::of(block));
                    prop_assert!(block >= granules);
                }
                // What is not offered is smaller, or within a sixteenth.
                None => prop_assert!(block < granules + granules / 16 + 1),
            }
            prop_assert_eq!(bins.last(), Some(Cell::of(block)));
            bins.set_head(Cell::of(block), NONE);
            prop_assert_eq!(bins.last(), None);
            prop_assert_eq!(bins.fitting(1), None);
        }

        #[test]
        fn a_rounded_size_is_the_least_of_its_cell(granules in 1_u64..1 << 40) {
            let rounded = Cell::rounded(granules);
            prop_assert!(rounded >= granules && rounded - granules <= granules / 16);
            prop_assert!(rounded == 1 || Cell::of(rounded - 1) != Cell::of(rounded));
            prop_assert_eq!(Cell::rounded(rounded), rounded);
        }

        #[test]
        fn larger_blocks_are_never_in_lower_cells(one in 1_u64..1 << 56, two in 1_u64..1 << 56) {
            let (small, large) = (one.min(two), one.max(two));
            prop_assert!(Cell::of(small).0 <= Cell::of(large).0);
        }
    }

    #[test]
    fn sizes_below_thirty_two_granules_have_cells_of_their_own() {
        let cells: std::collections::HashSet<u16> = (1..32).map(|granules| Cell::of(granules).0).collect();
        assert_eq!(cells.len(), 31);
        assert_eq!(Cell::all_fit(u64::MAX), None);
    }
}
