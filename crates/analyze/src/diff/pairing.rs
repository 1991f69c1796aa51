//! Finds what is the same on both sides.
//!
//! First by its text without what differs from run to run; what is left over then by its place without
//! the line, because lines move when something else in the file changes. Of several such places in one
//! function the first line goes with the first, the second with the second, as far as there are both.

use std::collections::BTreeMap;

use crate::block::GroupBy;
use crate::origins::Totals;
use crate::paths::{without_addresses, without_line};

/// The same thing on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) key: String,
    pub(super) key_before: Option<String>,
    pub(super) before: Totals,
    pub(super) after: Totals,
}

/// A key without what differs from run to run.
pub(super) fn lasting(key: &str, by: GroupBy) -> String {
    match by {
        // These are numbers and nothing else.
        GroupBy::Stream | GroupBy::Thread | GroupBy::Size | GroupBy::Device | GroupBy::Kind => key.to_owned(),
        GroupBy::Process => without_process_number(key),
        GroupBy::Site
        | GroupBy::Stack
        | GroupBy::Name
        | GroupBy::Resource
        | GroupBy::Scope
        | GroupBy::Module => without_addresses(key),
    }
}

/// `python3` of `python3 (pid 7) on node1`.
fn without_process_number(key: &str) -> String {
    let parts = || {
        let (name, rest) = key.rsplit_once(" (pid ")?;
        rest.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(')').then(|| name.to_owned())
    };
    parts().unwrap_or_else(|| key.to_owned())
}

type Sums = BTreeMap<String, Totals>;

/// Finds the pairs, and what is on one side only.
pub(super) fn pair(before: &[(String, Totals)], after: &[(String, Totals)], by: GroupBy) -> Vec<Pair> {
    let sums = |side: &[(String, Totals)]| {
        side.iter().fold(Sums::new(), |mut sums, (key, weight)| {
            sums.entry(lasting(key, by)).or_default().add(*weight);
            sums
        })
    };
    let (mut first, mut pairs) = (sums(before), Vec::new());
    let mut left_over = Sums::new();
    for (key, after) in sums(after) {
        match first.remove(&key) {
            Some(before) => pairs.push(Pair { key, key_before: None, before, after }),
            None => {
                left_over.insert(key, after);
            }
        }
    }
    let has_lines = by == GroupBy::Site;
    pair_moved(first, left_over, has_lines, &mut pairs);
    pairs
}

/// By line, of one place.
type Lines = Vec<(u64, String, Totals)>;

fn pair_moved(first: Sums, second: Sums, has_lines: bool, pairs: &mut Vec<Pair>) {
    let mut places: BTreeMap<String, [Lines; 2]> = BTreeMap::new();
    for (side, sums) in [first, second].into_iter().enumerate() {
        for (key, weight) in sums {
            let (place, line) = if has_lines { without_line(&key) } else { (key.clone(), 0) };
            places.entry(place).or_default()[side].push((line, key, weight));
        }
    }
    for mut sides in places.into_values() {
        for lines in &mut sides {
            lines.sort();
        }
        let [first, second] = sides;
        let both = first.len().min(second.len());
        for ((_, before_key, before), (_, key, after)) in first.iter().zip(&second) {
            let (key, key_before) = (key.clone(), Some(before_key.clone()));
            pairs.push(Pair { key, key_before, before: *before, after: *after });
        }
        let alone = |key: String, before, after| Pair { key, key_before: None, before, after };
        let gone = first.into_iter().skip(both);
        pairs.extend(gone.map(|(_, key, weight)| alone(key, weight, Totals::default())));
        let new = second.into_iter().skip(both);
        pairs.extend(new.map(|(_, key, weight)| alone(key, Totals::default(), weight)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(groups: &[(&str, u64)]) -> Vec<(String, Totals)> {
        groups.iter().map(|(key, bytes)| ((*key).to_owned(), Totals { bytes: *bytes, blocks: 1 })).collect()
    }

    fn found(before: &[(&str, u64)], after: &[(&str, u64)], by: GroupBy) -> Vec<(String, u64, u64)> {
        let mut found: Vec<_> = pair(&side(before), &side(after), by)
            .into_iter()
            .map(|pair| (pair.key, pair.before.bytes, pair.after.bytes))
            .collect();
        found.sort();
        found
    }

    #[test]
    fn lines_that_moved_are_found_again_and_the_exact_place_goes_first() {
        let before = [("load (a.py:10)", 1), ("load (a.py:20)", 2), ("step (b.py:5)", 3)];
        let after =
            [("load (a.py:12)", 10), ("load (a.py:22)", 20), ("load (a.py:30)", 30), ("step (b.py:5)", 3)];
        assert_eq!(
            found(&before, &after, GroupBy::Site),
            [
                ("load (a.py:12)".to_owned(), 1, 10),
                ("load (a.py:22)".to_owned(), 2, 20),
                ("load (a.py:30)".to_owned(), 0, 30),
                ("step (b.py:5)".to_owned(), 3, 3)
            ]
        );
    }

    #[test]
    fn addresses_and_process_numbers_do_not_tell_apart() {
        assert_eq!(
            found(
                &[("0x7f01 [lib.so]", 1)],
                &[("0x7f02 [lib.so]", 2), ("0x7f03 [lib.so]", 3)],
                GroupBy::Site
            ),
            [("0x… [lib.so]".to_owned(), 1, 5)]
        );
        assert_eq!(
            found(&[("python3 (pid 7) on a", 1)], &[("python3 (pid 912) on b", 2)], GroupBy::Process),
            [("python3".to_owned(), 1, 2)]
        );
        assert_eq!(found(&[("0x10", 1)], &[("0x20", 2)], GroupBy::Stream).len(), 2);
    }
}
