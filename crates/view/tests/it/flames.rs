//! Flame graphs as they look, and what holds of every one of them.

use floodmark_analyze::diff::DiffNode;
use floodmark_analyze::{Diff, DiffSide, Flame, FlameNode, FlameOf, GroupBy, Totals};
use floodmark_event::Kind;
use floodmark_view::Layout;
use floodmark_view::flame::{FlameChart, Placed, Tone, draw, page, place, terminal};
use floodmark_view::plot::{Shade, pdf, svg};
use insta::assert_snapshot;
use resvg::usvg::roxmltree::{Document, Node};

/// Nodes by depth, text and bytes of their own, depth first.
fn flame(nodes: &[(usize, &str, u64)]) -> Flame {
    let weight = |bytes: u64| Totals { bytes, blocks: u64::from(bytes > 0) };
    let mut flame = Flame { of: FlameOf::Marked, kinds: vec![Kind::Device], ..Flame::default() };
    let mut path: Vec<u32> = Vec::new();
    for (at, (depth, text, own)) in nodes.iter().enumerate() {
        path.truncate(*depth);
        flame.nodes.push(FlameNode {
            parent: path.last().copied(),
            text: (*text).to_owned(),
            is_folded: text.starts_with('…'),
            weight: Totals::default(),
            own: weight(*own),
        });
        path.push(at as u32);
        for above in &path {
            flame.nodes[*above as usize].weight.add(weight(*own));
        }
        flame.total.add(weight(*own));
    }
    flame
}

fn training() -> Flame {
    let mut nodes = vec![
        (0, "main (/home/me/train.py:90)", 0),
        (1, "… 4–7 frames", 0),
        (2, "forward (/opt/site-packages/torch/nn/modules/linear.py:134)", 300 << 20),
        (3, "relu (/opt/site-packages/torch/nn/functional.py:1723)", 200 << 20),
        (2, "step (/home/me/train.py:44)", 150 << 20),
        (1, "load (/home/me/data.py:12)", 100 << 20),
        (2, "malloc [/usr/lib/libc.so.6]", 40 << 20),
        (1, "rare", 1 << 20),
    ];
    nodes.extend(std::iter::repeat_n((1, "tiny", 1000), 30));
    nodes.push((0, "(no stack)", 60 << 20));
    flame(&nodes)
}

fn chart() -> FlameChart {
    FlameChart::of(&training(), "run.flood")
}

fn changes() -> Diff {
    let side = DiffSide::default();
    let mut diff = Diff::new(&side, &side, GroupBy::Site);
    let weight = |mib: u64| Totals { bytes: mib << 20, blocks: u64::from(mib > 0) };
    for (parent, text, before, after, most) in [
        (None, "main (app.py)", 100, 160, 190),
        (Some(0), "load (app.py)", 60, 90, 90),
        (Some(0), "cache (app.py)", 0, 50, 50),
        (Some(0), "old (app.py)", 30, 0, 30),
        (Some(0), "same (app.py)", 10, 20, 20),
        (None, "other (b.py)", 40, 40, 40),
    ] {
        let (before, after, most_bytes) = (weight(before), weight(after), most << 20);
        diff.nodes.push(DiffNode { parent, text: text.into(), is_folded: false, before, after, most_bytes });
    }
    diff
}

#[test]
fn flame_graphs_look_as_they_did() {
    let drawn = |chart: &FlameChart, width, shade| svg::svg(&draw::scene(chart, width, shade));
    assert_snapshot!("flame_300", drawn(&chart(), 300, Shade::Light));
    assert_snapshot!("flame_2000_dark", drawn(&chart(), 2000, Shade::Dark));
    assert_snapshot!("flame_of_changes", drawn(&FlameChart::of_diff(&changes()), 900, Shade::Light));
    assert_snapshot!("flame_page", page::html(&chart(), page::PageTheme::Reader));
    let layout = Layout { width: 80, ..Layout::default() };
    assert_snapshot!("flame_terminal", terminal::text(&chart(), &layout));
    assert!(pdf::pdf(&draw::scene(&chart(), 600, Shade::Light)).starts_with(b"%PDF"));
}

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).and_then(|text| text.parse().ok()).expect("it has this number")
}

#[test]
fn texts_fit_their_boxes_at_every_width_and_every_box_says_what_it_is() {
    for chart in [chart(), FlameChart::of_diff(&changes())] {
        for width in [200, 300, 301, 777, 2000, 10_000] {
            let text = svg::svg(&draw::scene(&chart, width, Shade::Light));
            let document = Document::parse(&text).unwrap();
            let groups: Vec<_> = document.descendants().filter(|node| node.has_tag_name("g")).collect();
            assert!(groups.len() >= 6);
            for group in &groups {
                let child = |name: &str| group.children().find(|node| node.has_tag_name(name));
                let hint = child("title").unwrap().text().unwrap();
                assert!(hint.contains("iB") || hint.contains(" B"), "{hint}");
                let rect = child("rect").unwrap();
                let (x, wide) = (number(rect, "x"), number(rect, "width"));
                assert!(x >= 0.0 && x + wide <= f64::from(width) + 0.1, "{width}");
                if let Some(label) = child("text") {
                    let right = number(label, "x") + number(label, "textLength");
                    assert!(number(label, "x") >= x && right <= x + wide + 0.2, "{width}: {hint}");
                }
            }
        }
    }
}

#[test]
fn boxes_never_overlap_and_lie_right_below_those_above() {
    for narrowest in [0.0, 0.001, 0.01, 0.2] {
        let placement = place(&chart(), narrowest);
        for (at, one) in placement.boxes.iter().enumerate() {
            for other in &placement.boxes[..at] {
                let apart =
                    one.left + one.width <= other.left + 1e-9 || other.left + other.width <= one.left + 1e-9;
                let ends_above = |a: &Placed, b: &Placed| a.bottom(4.0, 1.0) <= b.top(4.0, 1.0);
                let stacked = ends_above(one, other) || ends_above(other, one);
                assert!(stacked || apart, "{one:?} {other:?}");
            }
            let within = |above: &Placed| {
                above.bottom(4.0, 1.0).to_bits() == one.top(4.0, 1.0).to_bits()
                    && above.left <= one.left + 1e-9
                    && one.left + one.width <= above.left + above.width + 1e-9
            };
            assert!(one.row + one.seams == 0 || placement.boxes.iter().any(within), "{one:?}");
        }
    }
}

#[test]
fn boxes_that_nobody_could_see_are_joined_and_counted() {
    let mut nodes = vec![(0, "main", 900_000)];
    nodes.extend((0..200).map(|_| (1, "tiny", 500)));
    let chart = FlameChart::of(&flame(&nodes), "x");
    let placement = place(&chart, 0.001);
    let joined: Vec<_> = placement.boxes.iter().filter(|one| one.tone == Tone::Joined).collect();
    assert_eq!(
        (joined.len(), placement.unseen, placement.boxes.len()),
        (1, 0, 2),
        "what a box tells is not told again"
    );
    assert_eq!(joined[0].text, "200 more");
    assert!(
        joined[0].hint.contains("200 calls") && joined[0].hint.contains("97.7 KiB"),
        "{}",
        joined[0].hint
    );
}

#[test]
fn sums_that_cannot_be_counted_stay_within_the_picture() {
    let nodes =
        [(0, "main", 0), (1, "a", u64::MAX - 7), (1, "b", u64::MAX / 2), (2, "c", 9), (0, "d", 1 << 63)];
    let placement = place(&FlameChart::of(&flame(&nodes), "x"), 0.001);
    assert!(
        placement.boxes.iter().all(|one| one.width >= 0.0 && one.left + one.width <= 1.0 + 1e-9),
        "{placement:?}"
    );
}

#[test]
fn changes_are_told_by_words_and_edges_too() {
    let text = svg::svg(&draw::scene(&FlameChart::of_diff(&changes()), 1200, Shade::Dark));
    for word in [">new: cache", ">gone: old", ">+50 % load", ">other (b.py)<", "stroke-dasharray"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn deep_and_absurd_graphs_are_drawn() {
    let deep: Vec<(usize, &str, u64)> = (0..3000).map(|depth| (depth, "again", 1)).collect();
    let absurd = flame(&[(0, "all", u64::MAX), (0, "more", u64::MAX), (1, "", 0)]);
    for flame in [flame(&deep), absurd, Flame::default()] {
        let chart = FlameChart::of(&flame, "x");
        let text = svg::svg(&draw::scene(&chart, 300, Shade::Light));
        assert!(Document::parse(&text).is_ok() && !text.contains("NaN") && !text.contains("inf"));
        assert!(page::html(&chart, page::PageTheme::Dark).ends_with("</html>\n"));
        for width in [40, 80] {
            let layout = Layout { width, rows: None, ..Layout::default() };
            let text = terminal::text(&chart, &layout);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
    }
}

#[test]
fn hostile_names_stay_names() {
    for name in crate::hostile::NAMES {
        let chart = FlameChart::of(&flame(&[(0, name, 10), (1, name, 20)]), name);
        let text = svg::svg(&draw::scene(&chart, 2000, Shade::Light));
        let document = Document::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for node in document.descendants().filter(Node::is_element) {
            let tag = node.tag_name().name();
            assert!(["svg", "title", "rect", "g", "text"].contains(&tag), "{name}: <{tag}>");
            assert!(node.attributes().all(|attribute| !attribute.name().starts_with("on")), "{name}");
        }
        let page = page::html(&chart, page::PageTheme::Reader);
        // Its own script, whatever was recorded; in pictures too.
        assert!(page.matches("<script").count() == 1 && !page.contains("\" onload"), "{name}");
        let picture = draw::interactive_svg(&draw::scene(&chart, 2000, Shade::Light));
        let document = Document::parse(&picture).unwrap_or_else(|error| panic!("{name}: {error}"));
        let scripts =
            document.descendants().filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "script")));
        assert_eq!(scripts.count(), 1, "{name}");
        assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}') && !page.contains('\0'), "{name}");
        let text = terminal::text(&chart, &Layout::default());
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{name}");
    }
}

#[test]
fn folded_frames_are_thin_lines_without_text() {
    let chart = FlameChart::of(
        &flame(&[
            (0, "… 3 frames", 0),
            (1, "main (app.py:1)", 0),
            (2, "… 20–63 frames", 0),
            (3, "load (app.py:2)", 60 << 20),
            (3, "keep (app.py:3)", 40 << 20),
        ]),
        "run.flood",
    );
    let placement = place(&chart, 0.0);
    let (boxed, seam) = (20.0, 4.0);
    let edges: Vec<(f64, f64)> =
        placement.boxes.iter().map(|one| (one.top(boxed, seam), one.bottom(boxed, seam))).collect();
    assert_eq!(edges, [(0.0, 4.0), (4.0, 24.0), (24.0, 28.0), (28.0, 48.0), (28.0, 48.0)]);
    assert_eq!(placement.height(boxed, seam).to_bits(), 48.0_f64.to_bits());
    let drawn = svg::svg(&draw::scene(&chart, 900, Shade::Light));
    let document = Document::parse(&drawn).unwrap();
    let written = |hint: &str| {
        let is_it = |node: &Node<'_, '_>| {
            let title = node.children().find(|child| child.has_tag_name("title"));
            title.and_then(|title| title.text()).is_some_and(|text| text.starts_with(hint))
        };
        let group = document.descendants().filter(|node| node.has_tag_name("g")).find(is_it).expect(hint);
        group.children().any(|child| child.has_tag_name("text"))
    };
    assert!(written("load") && !written("… 20–63 frames"));
    let text = terminal::text(&chart, &Layout { width: 80, ..Layout::default() });
    assert!(!text.contains("frames") && text.contains("load (app.py:2)"), "{text}");
}
