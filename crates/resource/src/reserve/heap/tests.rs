//! The heap against a list of pieces.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const ONE: Tag = Tag(1);
const TWO: Tag = Tag(2);

impl Heap {
    /// All that the head of the file promises.
    fn check(&self) {
        let mut free = 0;
        let mut cached = 0;
        let mut live = 0;
        let mut whole = 0;
        for piece in self.pieces.iter().filter(|piece| piece.size > 0) {
            if piece.tag.is_free() {
                free += piece.size;
                whole += usize::from(piece.before == NONE && piece.after == NONE);
            } else if piece.tag == Tag::CACHED {
                cached += piece.size;
            } else {
                live += piece.size;
            }
            if piece.after != NONE {
                let after = &self.pieces[piece.after as usize];
                assert_eq!(piece.start + piece.size, after.start, "a gap");
                assert!(
                    std::ptr::eq(&raw const *piece, &raw const self.pieces[after.before as usize]),
                    "one-sided"
                );
                assert!(!piece.tag.is_free() || piece.tag != after.tag, "neighbors that were not joined");
            }
        }
        assert_eq!((live, free + cached, whole), (self.live_bytes, self.free_bytes(), self.whole));
        assert_eq!(cached == 0, self.cache.is_empty());
        let listed: u64 = self.free_pieces().map(|index| self.pieces[index as usize].size).sum();
        let counted: u64 = self.bins.iter().map(|bins| bins.bytes).sum();
        assert_eq!((listed, counted), (free, free));
    }
}

#[test]
fn what_is_given_back_joins_its_neighbors() {
    let mut heap = Heap::new();
    heap.add(4096, 8192, ONE);
    let blocks: Vec<u64> = (0..4).map(|_| heap.take(2048, ONE).unwrap()).collect();
    assert_eq!(blocks, [4096, 6144, 8192, 10240]);
    assert_eq!(heap.take(256, ONE), None);
    // In the middle, then left of it, right of it, and between.
    for (address, whole) in [(6144, None), (4096, None), (10240, None), (8192, Some(4096))] {
        let given = heap.give(address, ONE).unwrap();
        assert_eq!((given.asked, given.whole.map(|whole| whole.start)), (2048, whole));
        heap.check();
    }
    assert_eq!(heap.largest(None), 8192);
    assert_eq!(heap.give(8192, ONE), None, "twice");
    let whole = heap.wholes()[0];
    heap.remove(whole);
    assert_eq!((heap.span_bytes(), heap.whole_spans()), (0, 0));
}

#[test]
fn pieces_of_two_streams_join_when_settled() {
    let mut heap = Heap::new();
    heap.add(4096, 4096, Tag::CLEAN);
    let blocks: Vec<u64> = (0..4).map(|_| heap.take(1024, Tag::CLEAN).unwrap()).collect();
    for (block, tag) in blocks.into_iter().zip([ONE, TWO, ONE, TWO]) {
        heap.give(block, tag);
    }
    assert_eq!(heap.take(2048, ONE), None);
    heap.check();
    assert_eq!(heap.other_tags(ONE).collect::<Vec<_>>(), [TWO]);
    assert_eq!(heap.settle(ONE), [TWO]);
    heap.check();
    assert_eq!(heap.take(4096, ONE), Some(4096));
}

#[test]
fn a_smaller_block_of_the_same_cell_does_not_hide_a_larger_one() {
    let mut heap = Heap::new();
    // 64 to 67 granules share a cell; more small ones than are looked at come first.
    heap.add(1 << 20, 67 * GRANULE, ONE);
    for number in 0..10 {
        heap.add((2 + number) << 20, 64 * GRANULE, ONE);
    }
    assert_eq!(heap.take(66 * GRANULE, ONE), Some(1 << 20));
    heap.check();
}

#[test]
fn what_another_heap_divided_comes_back_in_its_pieces() {
    let (mut lender, mut borrower) = (Heap::new(), Heap::new());
    lender.add(1 << 20, 1 << 20, ONE);
    let span = lender.lend(1 << 16, ONE).unwrap();
    assert_eq!(lender.give_live(span, ONE), None, "lent, not handed out");
    borrower.add(span, 1 << 16, ONE);
    let kept = borrower.take(4096, ONE).unwrap();
    let (freed, _also_kept) = (borrower.take(4096, ONE).unwrap(), borrower.take(4096, ONE).unwrap());
    borrower.give(freed, TWO);
    for (start, moved) in borrower.drain() {
        lender.absorb(start, &moved);
    }
    assert_eq!((borrower.span_bytes(), borrower.live_blocks()), (0, 0));
    lender.check();
    assert_eq!((lender.live_bytes(), lender.live_blocks()), (8192, 2));
    assert_eq!(lender.give_live(kept, ONE).map(|given| given.asked), Some(4096));
    lender.check();
}

#[test]
fn a_block_that_comes_back_is_kept_as_it_is_until_memory_is_short() {
    let mut heap = Heap::new();
    heap.add(1 << 20, 1 << 20, ONE);
    heap.cache_for(ONE);
    // 33 granules have a cell with 32 and 34 for its neighbors: rounded up to 34.
    let [first, second] = [0, 1].map(|_| heap.take(33 * GRANULE, ONE).unwrap());
    assert_eq!(second - first, 34 * GRANULE);
    assert_eq!(heap.give(first, ONE), Some(Given { asked: 33 * GRANULE, whole: None }));
    assert_eq!(heap.give(first, ONE), None, "twice");
    heap.check();
    assert_eq!(heap.take(34 * GRANULE, ONE), Some(first), "the same block again");
    assert_eq!(heap.give(second, TWO).map(|given| given.asked), Some(33 * GRANULE));
    assert_eq!(heap.take(33 * GRANULE, ONE), Some(second + 34 * GRANULE), "not that of another stream");
    heap.check();
    for block in [first, second + 34 * GRANULE] {
        heap.give(block, ONE);
    }
    // Only cached blocks, merged with their neighbors, are large enough.
    heap.settle(ONE);
    assert_eq!(heap.take(1 << 20, ONE), Some(1 << 20));
}

#[derive(Clone, Debug)]
enum Step {
    Take { size: u64, tag: u32 },
    Give { which: usize, tag: u32 },
    Settle { tag: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![1_u64..40, 1_u64..4000].prop_map(|granules| granules * GRANULE);
    let step = prop_oneof![
        5 => (size, 0_u32..3).prop_map(|(size, tag)| Step::Take { size, tag }),
        4 => (any::<usize>(), 0_u32..3).prop_map(|(which, tag)| Step::Give { which, tag }),
        1 => (0_u32..3).prop_map(|tag| Step::Settle { tag }),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #[test]
    fn pieces_never_overlap_and_all_join_in_the_end(steps in steps(), keeps in any::<bool>()) {
        let mut heap = Heap::new();
        if keeps {
            heap.cache_for(ONE);
        }
        heap.add(1 << 20, 8 << 20, Tag::CLEAN);
        heap.add(1 << 30, 1 << 20, Tag(1));
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Take { size, tag } => {
                    let Some(start) = heap.take(size, Tag(tag)) else {
                        let largest = heap.largest(Some(Tag(tag)));
                        prop_assert!(largest < size, "{largest} would have fitted {size}");
                        continue;
                    };
                    let before = live.range(..=start).next_back().map_or(0, |(at, size)| at + size);
                    let after = live.range(start..).next().map_or(u64::MAX, |(at, _)| *at);
                    prop_assert!(before <= start && start + size <= after, "overlap");
                    live.insert(start, size);
                }
                Step::Give { which, tag } => {
                    let Some(start) = live.keys().nth(which % live.len().max(1)).copied() else { continue };
                    let size = live.remove(&start);
                    prop_assert_eq!(heap.give(start, Tag(tag)).map(|given| given.asked), size);
                }
                Step::Settle { tag } => {
                    heap.settle(Tag(tag));
                    prop_assert_eq!(heap.other_tags(Tag(tag)).count(), 0);
                }
            }
            heap.check();
        }
        for start in live.into_keys() {
            heap.give(start, Tag(2));
        }
        heap.settle(Tag(0));
        heap.check();
        prop_assert_eq!(heap.wholes().len(), 2);
        prop_assert_eq!(heap.largest(None), 8 << 20);
    }
}
