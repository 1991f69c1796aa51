//! Colors.
//!
//! Series have the eight colors of Okabe and Ito, which people with any kind of color vision can tell
//! apart; the yellow one comes last because it is faint on white.

use crate::plot::scene::Color;

/// Colors of series.
pub(crate) const COLORS: usize = 8;

/// A light or a dark picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shade {
    /// Dark on white.
    #[default]
    Light,
    /// Light on black.
    Dark,
}

/// The colors of a picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    pub(crate) paper: Color,
    pub(crate) ink: Color,
    pub(crate) faint: Color,
    pub(crate) grid: Color,
    pub(crate) band: Color,
    grew: Color,
    series: [Color; COLORS],
}

const LIGHT: Theme = Theme {
    paper: Color(0xff, 0xff, 0xff),
    ink: Color(0x1c, 0x22, 0x28),
    faint: Color(0x5f, 0x6b, 0x76),
    grid: Color(0xdf, 0xe3, 0xe8),
    band: Color(0x6d, 0x7b, 0x8a),
    grew: Color(0xd0, 0x2c, 0x2c),
    series: [
        Color(0x00, 0x72, 0xb2),
        Color(0xd5, 0x5e, 0x00),
        Color(0x00, 0x9e, 0x73),
        Color(0xcc, 0x79, 0xa7),
        Color(0x56, 0xb4, 0xe9),
        Color(0xe6, 0x9f, 0x00),
        Color(0x6b, 0x6b, 0x6b),
        Color(0xb8, 0xa9, 0x00),
    ],
};

const DARK: Theme = Theme {
    paper: Color(0x12, 0x16, 0x1b),
    ink: Color(0xe6, 0xea, 0xee),
    faint: Color(0x9a, 0xa6, 0xb2),
    grid: Color(0x2c, 0x34, 0x3d),
    band: Color(0x8c, 0x9b, 0xab),
    grew: Color(0xff, 0x6b, 0x5e),
    series: [
        Color(0x4d, 0xb2, 0xf0),
        Color(0xff, 0x8a, 0x3d),
        Color(0x2f, 0xc8, 0x9a),
        Color(0xe3, 0x9c, 0xc4),
        Color(0x9a, 0xd6, 0xff),
        Color(0xff, 0xc1, 0x33),
        Color(0xa8, 0xa8, 0xa8),
        Color(0xf0, 0xe4, 0x42),
    ],
};

impl Theme {
    pub(crate) fn of(shade: Shade) -> Self {
        match shade {
            Shade::Light => LIGHT,
            Shade::Dark => DARK,
        }
    }

    /// The color of what grew.
    pub(crate) fn grew(&self) -> Color {
        self.grew
    }

    /// The color of what shrank.
    pub(crate) fn shrank(&self) -> Color {
        self.series[0]
    }

    /// The color of the `number`th series.
    pub(crate) fn series(&self, number: usize) -> Color {
        self.series[number % self.series.len()]
    }
}
