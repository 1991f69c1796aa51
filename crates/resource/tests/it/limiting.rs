//! Limits.

use floodmark_resource::{AllocError, Cause, Limiting, Resource as _, Simulated, Statistics};

use crate::blocks::{MIB, give, give_all, take, try_take};

#[test]
fn a_request_beyond_the_limit_is_refused() {
    let limiting = Limiting::new(Simulated::new(1 << 40), 5 * MIB);
    let error = try_take(&limiting, 5 * MIB + 1).unwrap_err();
    let details = error.out_of_memory().expect("a lack of memory");
    assert_eq!((details.resource, details.cause), ("limiting", Cause::Limit));
    assert_eq!((details.limit_bytes, details.live_bytes), (Some(5 * MIB), 0));
    assert!(error.to_string().contains("its limit is 5.00 MiB"), "{error}");
    assert!(try_take(&limiting, u64::MAX).unwrap_err().is_out_of_memory());
    assert_eq!(limiting.allocated_bytes(), 0);
}

#[test]
fn what_the_upstream_refuses_is_not_counted() {
    let limiting = Limiting::new(Simulated::new(2 * MIB), 5 * MIB);
    let error = try_take(&limiting, 4 * MIB).unwrap_err();
    assert_eq!(error.out_of_memory().unwrap().resource, "simulated");
    assert_eq!((limiting.allocated_bytes(), limiting.remaining_bytes()), (0, 5 * MIB));
}

#[test]
fn frees_make_room() {
    let limiting = Limiting::new(Simulated::new(1 << 40), 10 * MIB);
    let first = take(&limiting, 4 * MIB);
    assert_eq!(limiting.remaining_bytes(), 6 * MIB);
    let second = take(&limiting, 4 * MIB);
    assert_eq!(limiting.remaining_bytes(), 2 * MIB);
    give(&limiting, first);
    assert_eq!(limiting.allocated_bytes(), 4 * MIB);
    let third = take(&limiting, 6 * MIB);
    assert_eq!((limiting.allocated_bytes(), limiting.remaining_bytes()), (10 * MIB, 0));
    give(&limiting, second);
    give(&limiting, third);
    assert_eq!(limiting.remaining_bytes(), 10 * MIB);
}

#[test]
fn a_refusal_changes_nothing() {
    let limiting = Limiting::new(Simulated::new(1 << 40), 10 * MIB);
    let blocks = [take(&limiting, 4 * MIB), take(&limiting, 4 * MIB)];
    assert!(try_take(&limiting, 3 * MIB).is_err());
    assert_eq!((limiting.allocated_bytes(), limiting.remaining_bytes()), (8 * MIB, 2 * MIB));
    give_all(&limiting, blocks);
}

#[test]
fn a_full_limit_refuses_a_single_byte() {
    let limiting = Limiting::new(Simulated::new(1 << 40), MIB);
    let blocks = [take(&limiting, MIB / 2), take(&limiting, MIB / 2)];
    assert!(try_take(&limiting, 1).unwrap_err().is_out_of_memory());
    give_all(&limiting, blocks);
}

#[test]
fn requests_count_in_steps() {
    let limiting = Limiting::new(Simulated::new(1 << 40), MIB);
    take(&limiting, 1);
    assert_eq!(limiting.allocated_bytes(), 256);
    let limiting = Limiting::new(Simulated::new(1 << 40), MIB).counted_in(1).unwrap();
    take(&limiting, 1);
    assert_eq!(limiting.allocated_bytes(), 1);
    let odd = Limiting::new(Simulated::new(1 << 40), MIB).counted_in(3);
    assert!(matches!(odd, Err(AllocError::Invalid { alignment: 3, .. })));
}

#[test]
fn the_room_shows_the_lower_limit() {
    let limiting = Limiting::new(Simulated::new(8 * MIB), MIB);
    let block = take(&limiting, MIB / 2);
    let room = limiting.room();
    assert_eq!((room.limit_bytes, room.largest_free_bytes), (Some(MIB), Some(MIB / 2)));
    assert_eq!(room.live_bytes, MIB / 2);
    give(&limiting, block);
    assert_eq!(Limiting::new(Simulated::new(MIB), 8 * MIB).room().limit_bytes, Some(MIB));
}

#[test]
fn threads_do_not_exceed_the_limit_together() {
    let limiting = Limiting::new(Statistics::new(Simulated::new(1 << 40)), 8 * 256);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let blocks: Vec<_> = (0..4).filter_map(|_| try_take(&limiting, 200).ok()).collect();
                    give_all(&limiting, blocks);
                }
            });
        }
    });
    assert_eq!(limiting.allocated_bytes(), 0);
    let counters =
        floodmark_resource::find::<floodmark_resource::StatisticsHandle>(&limiting).unwrap().counters();
    assert!(counters.allocations.peak <= 8 && counters.allocations.value == 0, "{counters:?}");
}
