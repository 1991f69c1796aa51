//! Figures that tests draw.

use floodmark_view::plot::{Dot, Figure, Layer, Note, Phase, Point, Role, Series, Stack};

const MIB: u64 = 1 << 20;
const MS: i64 = 1_000_000;

/// Numbers that are always the same.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

pub(crate) fn series(name: &str, points: &[(i64, u64)], end_ms: i64) -> Series {
    let points = points.iter().map(|(ms, mib)| Point { time_ns: ms * MS, bytes: mib * MIB }).collect();
    Series { name: name.into(), points, end_ns: end_ms * MS, ..Series::default() }
}

/// A saw: long rests and short peaks, one higher than the others.
pub(crate) fn saw(name: &str, seed: u64) -> Series {
    let mut numbers = Numbers::new(seed);
    let mut points = vec![(0, 2), (40, 50)];
    let mut at = 1000;
    for tooth in 0..60 {
        at += 60 + numbers.below(80) as i64;
        let high = if tooth == 37 { 191 } else { 150 + numbers.below(28) };
        points.extend([(at, high), (at + 5, 50)]);
    }
    series(name, &points, at + 500)
}

/// One curve.
pub(crate) fn alone() -> Figure {
    Figure {
        title: "./saw 60".into(),
        measure: "resident memory (RSS)".into(),
        series: vec![saw("rss", 1)],
        ..Figure::default()
    }
}

/// Curves whose ends are apart, one of them from another tool.
pub(crate) fn compared() -> Figure {
    let mut smi = series("nvidia-smi, GPU 0", &[(0, 300), (900, 640), (4000, 560)], 6100);
    smi.role = Role::Beside;
    let base = series("baseline", &[(0, 10), (500, 120), (1500, 380), (3000, 410), (5200, 90)], 6000);
    let new = series("with the cache", &[(0, 10), (600, 90), (1800, 260), (3300, 300)], 5600);
    Figure {
        title: "baseline and with the cache".into(),
        measure: "live bytes of device memory".into(),
        series: vec![base, new, smi],
        ..Figure::default()
    }
}

/// Parts that add up.
pub(crate) fn stacked() -> Figure {
    let times_ns: Vec<i64> = (0..200).map(|at| at * 25 * MS).collect();
    let mut numbers = Numbers::new(5);
    let mut layers = Vec::new();
    for (number, name) in
        ["mpiexec (4011)", "solver (4012)", "solver (4013)", "solver (4014)"].iter().enumerate()
    {
        let full = [12, 300, 280, 340][number];
        let values = (0..200).map(|at: u64| {
            let rise = at.min(60) * full / 60;
            if at > 180 { 0 } else { (rise + numbers.below(full / 10 + 1)) * MIB }
        });
        layers.push(Layer { name: (*name).into(), values: values.collect() });
    }
    let stack = Stack { times_ns, layers, end_ns: 5000 * MS };
    let total = Series { name: "total".into(), ..stack.total() };
    Figure {
        title: "mpiexec -n 3 ./solver -i input.i".into(),
        measure: "resident memory (RSS) of all processes".into(),
        series: vec![total],
        stack: Some(stack),
        ..Figure::default()
    }
}

/// Everything that can stand at an instant.
pub(crate) fn annotated() -> Figure {
    let mut figure = alone();
    let phase =
        |name: &str, from: i64, to: i64| Phase { name: name.into(), from_ns: from * MS, to_ns: to * MS };
    figure.phases = vec![
        phase("setup", 0, 1000),
        phase("nonlinear step 1", 1000, 4200),
        phase("nonlinear step 2", 4200, 8000),
    ];
    let texts =
        ["reading mesh", "step 1", "residual 1.2e-3, still going", "step 2", "residual 4.1e-9", "done"];
    let times = [30, 1010, 1100, 4210, 4260, 7300];
    figure.notes = texts
        .iter()
        .zip(times)
        .map(|(text, ms)| Note { time_ns: ms * MS, series: 0, text: (*text).into() })
        .collect();
    let frames = ["memset", "assemble (solver.cc:77)", "main"].map(str::to_owned).to_vec();
    figure.dots =
        [1200, 3000, 5000, 6500].map(|ms| Dot { time_ns: ms * MS, series: 0, lines: frames.clone() }).into();
    figure.remarks = vec!["12 were lost: the disk was full".into()];
    figure
}
