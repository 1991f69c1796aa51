//! Frames and what a ring's header says go through any stream of bytes unharmed, and damage is noticed.

use std::io;

use floodmark_tail::clock::Anchor;
use floodmark_tail::reader::LossReason;
use floodmark_tail::record::{Control, ProcessHeader};
use floodmark_tail::stream::{self, ChunkFrame, StreamItem, StreamReader};
use proptest::prelude::*;

/// Hands out its bytes in pieces of this length, as a network does.
struct Pieces<'a>(&'a [u8], usize);

impl io::Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.1.min(buffer.len()).min(self.0.len());
        buffer[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        Ok(len)
    }
}

fn read(bytes: &[u8], piece: usize) -> (Vec<StreamItem>, io::Result<()>) {
    let mut reader = StreamReader::new(Pieces(bytes, piece));
    let mut items = Vec::new();
    loop {
        match reader.next_item() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, Ok(())),
            Err(error) => return (items, Err(error)),
        }
    }
}

fn header() -> impl Strategy<Value = Control> {
    let texts = (".{0,40}", ".{0,40}", ".{0,600}");
    let numbers = (any::<(u32, u32, u64, u64, u64, i64)>(), any::<[u8; 16]>());
    (texts, numbers).prop_map(|((stem, host, command), (numbers, boot_id))| {
        let (pid, parent_pid, process_start, pid_namespace, monotonic_ns, utc_ns) = numbers;
        let anchor = Anchor { monotonic_ns, utc_ns };
        Control::Process(Box::new(ProcessHeader {
            stem,
            pid,
            parent_pid,
            process_start,
            pid_namespace,
            anchor,
            boot_id,
            host,
            command,
        }))
    })
}

fn item() -> impl Strategy<Value = StreamItem> {
    let losses = proptest::collection::vec((0usize..4, any::<u64>()), 0..5)
        .prop_map(|losses| losses.into_iter().map(|(at, count)| (LossReason::ALL[at], count)).collect());
    let error_ns = prop_oneof![Just(None), (0..u64::MAX).prop_map(Some)];
    let control = prop_oneof![
        header(),
        any::<u64>().prop_map(|time_ns| Control::Ended { time_ns }),
        losses.prop_map(Control::Losses),
        (any::<i64>(), error_ns).prop_map(|(offset_ns, error_ns)| Control::Clock { offset_ns, error_ns }),
    ];
    let payload = proptest::collection::vec(any::<u8>(), 0..300);
    let chunk =
        (any::<(u64, u64, i64, bool, bool)>(), 0u32..5000, payload).prop_map(|(numbers, lane, payload)| {
            let (sequence, base_time_ns, utc_offset_ns, is_open, is_disordered) = numbers;
            ChunkFrame { lane, sequence, base_time_ns, utc_offset_ns, is_open, is_disordered, payload }
        });
    prop_oneof![control.prop_map(StreamItem::Control), chunk.prop_map(StreamItem::Chunk)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn items_come_back_from_any_pieces_and_a_cut_or_changed_stream_is_noticed(
        items in proptest::collection::vec(item(), 1..12),
        piece in 1usize..200,
        at in any::<prop::sample::Index>(),
        with in 1u8..,
    ) {
        let mut bytes = Vec::new();
        for item in &items {
            stream::write(&mut bytes, item).expect("writes into memory");
        }
        let (found, end) = read(&bytes, piece);
        prop_assert!(end.is_ok());
        prop_assert_eq!(&found, &items);
        // Cut within an item: those before it are good, and the cut is an error.
        let cut = at.index(bytes.len());
        let (found, end) = read(&bytes[..cut], piece);
        prop_assert_eq!(&found[..], &items[..found.len()]);
        let mut whole = Vec::new();
        items[..found.len()].iter().try_for_each(|item| stream::write(&mut whole, item)).expect("writes");
        prop_assert_eq!(end.is_err(), cut > whole.len());
        // Changed: nothing but what was sent comes out.
        bytes[cut] ^= with;
        let (found, end) = read(&bytes, piece);
        prop_assert!(found.iter().zip(&items).all(|(found, sent)| found == sent));
        let padding = found == items;
        prop_assert!(end.is_err() || padding);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes, 7);
        stream::controls(&bytes);
    }
}
