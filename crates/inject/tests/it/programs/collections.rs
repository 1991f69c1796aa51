// A Rust program: threads, collections, panics that are caught.
use std::collections::{BTreeMap, HashMap};

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let threads: Vec<_> = (0..4)
        .map(|thread: u64| {
            std::thread::spawn(move || {
                let mut map = HashMap::new();
                let mut tree = BTreeMap::new();
                for at in 0..3000_u64 {
                    map.insert(at * thread, format!("{at} {thread}"));
                    tree.insert(at ^ 0x55, vec![at; (at % 17) as usize]);
                    if at % 3 == 0 {
                        map.remove(&(at / 2));
                    }
                    // Grows by `realloc`.
                    let mut grown = Vec::new();
                    (0..100).for_each(|number| grown.push(number * at));
                    if at % 500 == 0 {
                        let _ = std::panic::catch_unwind(|| panic!("{}", vec![at; 10].len()));
                    }
                }
                map.len() + tree.len()
            })
        })
        .collect();
    let total: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    std::mem::forget(vec![0_u8; 12345]);
    assert!(total > 0);
}
