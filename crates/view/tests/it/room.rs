//! No text lies on another, and none leaves the picture, whatever there is to show.

use floodmark_view::plot::font::width;
use floodmark_view::plot::model::{Edge, Side};
use floodmark_view::plot::scene::{Anchor, Item, Scene, Text};
use floodmark_view::plot::{Dot, Figure, LegendPlace, Note, Phase, Props, Size, arrange};

use crate::figures::{Numbers, alone, annotated, compared, saw, series, stacked};

type Corners = [(f64, f64); 4];

fn corners(text: &Text) -> Corners {
    let long = width(&text.text, text.size);
    let left = match text.anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => -long / 2.0,
        Anchor::End => -long,
    };
    // Less than the font's own height: lines may be close.
    let (up, down) = (-0.74 * text.size, 0.02 * text.size);
    let (sin, cos) = (-text.angle).to_radians().sin_cos();
    let turned = |(x, y): (f64, f64)| (text.x + x * cos - y * sin, text.y + x * sin + y * cos);
    [(left, up), (left + long, up), (left + long, down), (left, down)].map(turned)
}

fn overlap(one: &Corners, other: &Corners) -> bool {
    let axes = |c: &Corners| [(c[1].0 - c[0].0, c[1].1 - c[0].1), (c[2].0 - c[1].0, c[2].1 - c[1].1)];
    let reach = |c: &Corners, axis: (f64, f64)| {
        let along = c.map(|(x, y)| x * axis.0 + y * axis.1);
        (along.into_iter().fold(f64::MAX, f64::min), along.into_iter().fold(f64::MIN, f64::max))
    };
    axes(one).into_iter().chain(axes(other)).all(|axis| {
        let (a, b) = (reach(one, axis), reach(other, axis));
        a.0 < b.1 && b.0 < a.1
    })
}

fn check(scene: &Scene, what: &str) {
    let texts: Vec<&Text> = scene
        .items
        .iter()
        .filter_map(|item| if let Item::Text(text) = item { Some(text) } else { None })
        .collect();
    for (at, text) in texts.iter().enumerate() {
        let frame = corners(text);
        for (x, y) in frame {
            let is_inside = x >= -0.5 && y >= -0.5 && x <= scene.size.0 + 0.5 && y <= scene.size.1 + 0.5;
            assert!(is_inside, "{what}: '{}' leaves the picture at {x:.0}, {y:.0}", text.text);
        }
        for other in &texts[at + 1..] {
            assert!(!overlap(&frame, &corners(other)), "{what}: '{}' and '{}'", text.text, other.text);
        }
    }
}

const SIZES: [(u32, u32); 7] =
    [(200, 120), (300, 200), (300, 600), (640, 200), (1200, 600), (2000, 1000), (4000, 300)];

const LEGENDS: [LegendPlace; 5] = [
    LegendPlace::Best,
    LegendPlace::Top,
    LegendPlace::None,
    LegendPlace::Corner(Side::Left, Edge::Bottom),
    LegendPlace::Corner(Side::Right, Edge::Top),
];

fn check_all(figure: &Figure, what: &str) {
    for (width, height) in SIZES {
        for legend in LEGENDS {
            let props = Props { size: Size { width, height }, legend, ..Props::default() };
            check(&arrange(figure, &props), &format!("{what} {width}x{height} {legend:?}"));
        }
    }
}

#[test]
fn texts_of_usual_figures_have_room() {
    check_all(&alone(), "alone");
    check_all(&annotated(), "annotated");
    check_all(&compared(), "compared");
    check_all(&stacked(), "stacked");
}

#[test]
fn notes_have_room_at_any_angle() {
    for note_angle in [-90.0, -45.0, 0.0, 10.0, 60.0, 90.0] {
        for (width, height) in SIZES {
            let props = Props { size: Size { width, height }, note_angle, ..Props::default() };
            check(&arrange(&annotated(), &props), &format!("{note_angle} degrees {width}x{height}"));
        }
    }
}

#[test]
fn texts_of_any_figure_have_room() {
    for seed in 0..60 {
        let mut numbers = Numbers::new(seed);
        let mut figure = Figure { title: "x".repeat(numbers.below(300) as usize), ..Figure::default() };
        figure.measure = "live bytes of everything ".repeat(numbers.below(9) as usize).trim().to_owned();
        for number in 0..numbers.below(12) {
            let name = "name ".repeat(numbers.below(20) as usize + 1).trim().to_owned();
            let mut one = saw(&name, number);
            let scale = 1 << numbers.below(40);
            let shift = numbers.below(5_000_000_000) as i64;
            for point in &mut one.points {
                point.bytes = point.bytes / 1024 * scale / 1024;
                point.time_ns += shift;
            }
            one.end_ns += shift;
            figure.series.push(one);
        }
        if figure.series.is_empty() {
            figure.series.push(series("flat", &[(0, 0)], 0));
        }
        let marks = numbers.below(60);
        for _ in 0..marks {
            let time_ns = numbers.below(9_000_000_000) as i64;
            let text = "some output ".repeat(numbers.below(4) as usize);
            figure.notes.push(Note { time_ns, series: numbers.below(4) as usize, text });
            figure.dots.push(Dot { time_ns, series: 0, lines: vec!["main".into()] });
        }
        let mut from_ns = 0;
        for _ in 0..numbers.below(20) {
            let to_ns = from_ns + numbers.below(2_000_000_000) as i64;
            figure.phases.push(Phase { name: "a phase of the run".into(), from_ns, to_ns });
            from_ns = to_ns;
        }
        figure.remarks = vec!["remark ".repeat(40); numbers.below(5) as usize];
        check_all(&figure, &format!("seed {seed}"));
    }
}
