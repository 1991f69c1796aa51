//! Two threads split a text into words, collect where each stands, and group them by how often they occur:
//! rust_words ROUNDS

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

fn text(words: usize, mut random: u64) -> String {
    let mut text = String::new();
    for _ in 0..words {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let _ = write!(text, "w{:x} ", random % 20_011);
        if random % 17 == 0 {
            text.push('\n');
        }
    }
    text
}

fn grouped(text: &str) -> usize {
    let mut places: HashMap<String, Vec<String>> = HashMap::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split(' ') {
            places.entry(word.to_string()).or_default().push(format!("{number}:{word}"));
        }
    }
    let mut by_count: BTreeMap<usize, Vec<Box<str>>> = BTreeMap::new();
    for (word, places) in places {
        by_count.entry(places.len()).or_default().push(word.into_boxed_str());
    }
    by_count.values().flatten().map(|word| word.to_uppercase().len()).sum()
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(6);
    let threads: Vec<_> = (0..2)
        .map(|number| {
            std::thread::spawn(move || {
                let text = text(200_000, 88_172_645_463_325_252 + number);
                (0..rounds).map(|_| grouped(&text)).sum::<usize>()
            })
        })
        .collect();
    let letters: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    eprintln!("{letters} letters");
}
