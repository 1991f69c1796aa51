//! scratch
use floodmark_event::{Kind, StackId, StringId, tail, tail::*};
#[allow(clippy::all)]
fn main() {
    let threads: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let dir = std::path::PathBuf::from("/tmp/scratch/b.flood");
    let _ = std::fs::remove_dir_all(&dir);
    let r = Recorder::start(RecordProps::new(&dir)).unwrap();
    let n = 10_000_000u64 / threads as u64;
    let run = |rec: bool| {
        let t = std::time::Instant::now();
        std::thread::scope(|s| {
            for k in 0..threads as u64 {
                s.spawn(move || {
                    let place = Place { device: 0, kind: Kind::Device, stream: k, resource: StringId(0) };
                    let mut x = 88172645463325252u64 + k;
                    let mut acc = 0u64;
                    for i in 0..n {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                        let a = 0x7f00_0000_0000 + ((x >> 20) & 0xfffff) * 256;
                        let b = x & 0xfffff;
                        if rec {
                            if i & 1 == 0 {
                                tail::alloc(a, b, &place, StackId(0));
                            } else {
                                tail::free(a, b, &place);
                            }
                        }
                        acc = acc.wrapping_add(a ^ b);
                    }
                    std::hint::black_box(acc);
                });
            }
        });
        t.elapsed().as_nanos() as f64 / (n * threads as u64) as f64
    };
    for _ in 0..3 {
        let base = run(false);
        let with = run(true);
        println!("{threads} threads: base {base:.2} with {with:.2} ns/event wall; added {:.2}", with - base);
    }
    r.stop();
}
