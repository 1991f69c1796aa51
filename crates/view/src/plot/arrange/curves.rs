//! Curves, stacks of areas, and what values they have where.

use crate::plot::arrange::Picture;
use crate::plot::arrange::field::Field;
use crate::plot::columns::{Column, Span, columns, edge, instants, outline, spans};
use crate::plot::model::{Role, Stack};
use crate::plot::scene::{Color, Curve, Fill, Item, Pen};

impl Picture<'_> {
    /// Draws the stack and the curves; returns what can be read from them.
    pub(super) fn curves(&mut self, field: &Field) -> Vec<Curve> {
        let figure = self.figure;
        let mut curves = Vec::new();
        if let Some(stack) = &figure.stack {
            curves = self.stack(stack, field);
        }
        let bottom = field.at[1] + field.at[3];
        let is_alone = figure.stack.is_none()
            && figure.series.iter().filter(|series| series.role == Role::Main).count() == 1;
        let mut read = Vec::new();
        for (number, series) in figure.series.iter().enumerate() {
            let color = self.color(number);
            let columns = columns(&series.points, |ns| field.x(ns));
            let end = field.x(series.end_ns);
            let is_dense = is_dense(&columns);
            let spans = spans(&columns, end);
            let path = if is_dense {
                self.band(&spans, end, field, color);
                edge(&spans, end, |span| span.high)
            } else {
                outline(&columns, series.shape, end)
            };
            let path: Vec<(f64, f64)> = path.into_iter().map(|(x, bytes)| (x, field.y(bytes))).collect();
            if let (Some(first), Some(last)) = (path.first(), path.last())
                && is_alone
                && series.role == Role::Main
            {
                let mut points = vec![(first.0, bottom)];
                points.extend(&path);
                points.push((last.0, bottom));
                let opacity = if is_dense { 0.08 } else { 0.16 };
                self.items.push(Item::Path { points, pen: None, fill: Some(Fill { color, opacity }) });
            }
            let width = (self.size * 0.13).max(1.2);
            let dash = self.is_dashed(number).then_some((4.0 * width, 2.5 * width));
            let width = if figure.stack.is_some() && number == 0 { 1.0 } else { width };
            self.items.push(Item::Path { points: path, pen: Some(Pen { color, width, dash }), fill: None });
            read.push(Curve { name: series.name.clone(), color, spans, to: end });
        }
        read.append(&mut curves);
        read
    }

    /// What lies between the lowest and the highest values, where lines would cover everything.
    fn band(&mut self, spans: &[Span], end: f64, field: &Field, color: Color) {
        let line = |value: fn(&Span) -> u64| {
            let path = edge(spans, end, value);
            path.into_iter().map(|(x, bytes)| (x, field.y(bytes))).collect::<Vec<_>>()
        };
        let mut points = line(|span| span.high);
        points.extend(line(|span| span.low).into_iter().rev());
        self.items.push(Item::Path { points, pen: None, fill: Some(Fill { color, opacity: 0.3 }) });
    }

    /// Areas on top of each other, each as high as its part.
    fn stack(&mut self, stack: &Stack, field: &Field) -> Vec<Curve> {
        let kept = instants(stack, |ns| field.x(ns));
        let end = field.x(stack.end_ns);
        let x = |at: usize| field.x(stack.times_ns[at]);
        let mut below = vec![0u64; kept.len()];
        let mut curves = Vec::new();
        for (number, layer) in stack.layers.iter().enumerate() {
            let value = |at: usize| layer.values.get(at).copied().unwrap_or(0);
            let above: Vec<u64> =
                kept.iter().zip(&below).map(|(at, below)| below.saturating_add(value(*at))).collect();
            let mut points = steps(&kept, &above, x, end, field);
            points.extend(steps(&kept, &below, x, end, field).into_iter().rev());
            let color = self.theme.series(number);
            let pen = Pen::solid(self.theme.paper, 0.5);
            self.items.push(Item::Path { points, pen: Some(pen), fill: Some(Fill { color, opacity: 0.85 }) });
            let span = |at: &usize| Span { x: x(*at), low: value(*at), high: value(*at) };
            let spans = kept.iter().map(span).collect();
            curves.push(Curve { name: layer.name.clone(), color, spans, to: end });
            below = above;
        }
        curves.reverse();
        curves
    }
}

/// Returns whether a third of the columns go up and down, so that lines would cover everything.
fn is_dense(columns: &[Column]) -> bool {
    let swings = columns.iter().filter(|column| column.count > 3 && column.low < column.high).count();
    swings > 40 && swings * 3 > columns.len()
}

/// The upper edge of an area.
fn steps(
    kept: &[usize],
    values: &[u64],
    x: impl Fn(usize) -> f64,
    end: f64,
    field: &Field,
) -> Vec<(f64, f64)> {
    let mut path: Vec<(f64, f64)> = Vec::new();
    for (at, value) in kept.iter().zip(values) {
        let (x, y) = (x(*at), field.y(*value));
        match path.last().copied() {
            Some((_, before)) if (before - y).abs() < 0.01 => continue,
            Some((_, before)) => path.push((x, before)),
            None => {}
        }
        path.push((x, y));
    }
    if let Some((_, y)) = path.last().copied() {
        path.push((end, y));
    }
    path
}
