//! Page faults of threads, which tell the thread that made its process grow.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::procfs;
use crate::tree::walk::{self, Path};

/// Number of processes whose counters are kept.
const MOST_PROCESSES: usize = 4096;

/// Page faults of each thread when stacks of its process were last taken because memory had grown.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    of_process: HashMap<i32, HashMap<i32, u64>>,
}

impl Faults {
    /// Reads the counters of a process; returns the thread with most page faults since the last call, unless
    /// there is only one thread, or none had any.
    pub(crate) fn most(&mut self, process: i32) -> Option<i32> {
        let counts = walk::threads_of(process)
            .filter_map(|thread| Some((thread, read(process, thread).ok()??)))
            .collect();
        self.update(process, counts)
    }

    fn update(&mut self, process: i32, counts: HashMap<i32, u64>) -> Option<i32> {
        if self.of_process.len() >= MOST_PROCESSES {
            self.of_process.clear();
        }
        let before = self.of_process.remove(&process).unwrap_or_default();
        let new = |thread: i32, count: u64| count.saturating_sub(before.get(&thread).copied().unwrap_or(0));
        let most = counts.iter().map(|(&thread, &count)| (new(thread, count), thread)).max();
        let is_alone = counts.len() < 2;
        self.of_process.insert(process, counts);
        most.filter(|(count, _)| *count > 0 && !is_alone).map(|(_, thread)| thread)
    }
}

fn read(process: i32, thread: i32) -> io::Result<Option<u64>> {
    let mut buffer = [0; 1024];
    let length = Path::of_thread(process, thread, "stat").open()?.read_at(&mut buffer, 0)?;
    Ok(procfs::stat(&buffer[..length]).map(|stat| stat.faults))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_with_most_new_faults_made_the_process_grow() {
        let mut faults = Faults::default();
        assert_eq!(faults.update(1, [(1, 900), (2, 10)].into()), Some(1), "since they began");
        assert_eq!(faults.update(1, [(1, 901), (2, 30), (3, 5)].into()), Some(2));
        assert_eq!(faults.update(1, [(1, 901), (2, 30), (3, 5)].into()), None, "none had any");
        assert_eq!(faults.update(1, [(1, 999)].into()), None, "there is no other thread");
        assert_eq!(faults.update(2, [(7, 3), (8, 4)].into()), Some(8));
    }

    #[test]
    fn faults_of_our_own_threads_are_counted_apart() {
        let me = std::process::id() as i32;
        let mut faults = Faults::default();
        std::thread::scope(|scope| {
            let (send, wait) = std::sync::mpsc::channel::<()>();
            let (tell, hear) = std::sync::mpsc::channel::<i32>();
            scope.spawn(move || {
                let thread = std::fs::read_link("/proc/thread-self").expect("there is a link");
                let id = thread.file_name().and_then(|name| name.to_str()?.parse().ok());
                wait.recv().expect("it is sent");
                let memory = std::hint::black_box(vec![1u8; 64 << 20]);
                tell.send(id.expect("a number")).expect("it is received");
                let _ = wait.recv();
                drop(memory);
            });
            faults.most(me);
            send.send(()).expect("it is received");
            let thread = hear.recv().expect("it is sent");
            assert_eq!(faults.most(me), Some(thread));
            drop(send);
        });
    }
}
