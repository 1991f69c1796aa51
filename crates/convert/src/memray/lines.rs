//! Line numbers of instructions, from the tables that Python's compiler makes.

/// Returns the line of the instruction at `offset` in bytes; 0 if it has none.
pub(super) fn line_of(python_version: u32, table: &[u8], first_line: i32, offset: i64) -> u32 {
    let Ok(offset) = u64::try_from(offset) else { return 0 };
    let line = if table.is_empty() {
        None
    } else if python_version >= 0x030b_0000 {
        line_of_locations(table, first_line, offset / 2)
    } else if python_version >= 0x030a_0000 {
        Some(line_of_ranges(table, first_line, offset * 2))
    } else {
        Some(line_of_steps(table, first_line, offset))
    };
    line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0)
}

/// Since 3.11 (PEP 657): entries of a length in code units and the change of the line.
fn line_of_locations(table: &[u8], first_line: i32, unit: u64) -> Option<i32> {
    let (mut line, mut at) = (first_line, 0);
    let mut bytes = table.iter().copied();
    while let Some(first) = bytes.next() {
        let code = first >> 3 & 15;
        match code {
            15 => {}
            14 => {
                line = line.wrapping_add(signed(&mut bytes)?);
                for _ in 0..3 {
                    number(&mut bytes)?;
                }
            }
            13 => line = line.wrapping_add(signed(&mut bytes)?),
            10..=12 => {
                line = line.wrapping_add(i32::from(code) - 10);
                bytes.nth(1)?;
            }
            _ => {
                bytes.next()?;
            }
        }
        at += u64::from(first & 7) + 1;
        if unit < at {
            return (code != 15).then_some(line);
        }
    }
    None
}

fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let (mut number, mut shift) = (0u32, 0);
    loop {
        let byte = bytes.next()?;
        number |= u32::from(byte & 63).checked_shl(shift).unwrap_or(0);
        if byte & 64 == 0 {
            return Some(number);
        }
        shift += 6;
    }
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i32> {
    let number = number(bytes)?;
    let magnitude = (number >> 1) as i32;
    Some(if number & 1 == 1 { -magnitude } else { magnitude })
}

/// In 3.10 (PEP 626): pairs of a length in bytes and the change of the line before it.
fn line_of_ranges(table: &[u8], first_line: i32, offset: u64) -> i32 {
    let (mut line, mut at) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        let change = pair[1] as i8;
        line = line.wrapping_add(if change == i8::MIN { 0 } else { i32::from(change) });
        at += u64::from(pair[0]);
        if at > offset {
            break;
        }
    }
    line
}

/// Before 3.10: pairs of a step in bytes and the change of the line behind it.
fn line_of_steps(table: &[u8], first_line: i32, offset: u64) -> i32 {
    let (mut line, mut at) = (first_line, 0);
    for pair in table.chunks_exact(2) {
        at += u64::from(pair[0]);
        if at > offset {
            break;
        }
        line = line.wrapping_add(i32::from(pair[1] as i8));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_the_tables_of_three_compilers() {
        // As Python 3.11.2 compiled a function of three lines that begins in line 8:
        // `def parse(lines):\n    rows = [0] * lines\n    return rows`.
        let table = [128, 0, 216, 12, 13, 136, 51, 144, 21, 137, 59, 128, 68, 216, 11, 15, 128, 75];
        let line = |offset| line_of(0x030b_02f0, &table, 8, offset);
        assert_eq!([0, 2, 10, 12, 14, 16].map(line), [8, 9, 9, 9, 10, 10]);
        assert_eq!([1000, -1].map(line), [0, 0]);
        // 3.10 compiled `def f():\n    x = 1\n    return x` to this table; the offset is in code units there.
        assert_eq!([0, 1, 2, 3].map(|at| line_of(0x030a_0000, &[4, 1, 4, 1], 1, at)), [2, 2, 3, 3]);
        // 3.9: `co_lnotab` of the same function.
        assert_eq!([0, 2, 4, 6].map(|at| line_of(0x0309_0000, &[0, 1, 4, 1], 1, at)), [2, 2, 3, 3]);
        // Nothing hostile panics.
        for byte in 0..=255 {
            line_of(0x030b_0000, &[byte; 7], i32::MAX, 40);
            line_of(0x030a_0000, &[byte; 7], i32::MIN, 40);
            line_of(0x0309_0000, &[byte; 7], i32::MIN, 40);
        }
    }
}
