//! Plots of experiments, as SVG and PNG.

mod bars;
mod lines;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::style::{FontStyle, RGBColor, WHITE};

pub(super) use bars::{Bars, Panel};
pub(super) use lines::{Curve, Lines};

use crate::error::{Error, Result};

const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
const FAMILY: &str = "sans-serif";
const TEXT_SIZE: i32 = 15;

/// Distinct in print and for those who do not see red and green apart (Okabe and Ito's palette).
pub(super) const COLORS: [RGBColor; 8] = [
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
];

/// What to draw.
pub enum Plot {
    /// Lines over an axis.
    Lines(Lines),
    /// Bars in panels.
    Bars(Bars),
}

/// Makes the font known that measures and draws the text. An error if it is not installed.
pub(super) fn register_font() -> Result<()> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let missing = |_| Error::NotFound(format!("the plot needs {FONT}, of the package fonts-dejavu-core"));
    if BYTES.get().is_none() {
        let _ = BYTES.set(fs::read(FONT).map_err(missing)?);
    }
    let bytes = BYTES.get().expect("it has just been set");
    plotters::style::register_font(FAMILY, FontStyle::Normal, bytes)
        .map_err(|_| Error::Invalid(format!("{FONT} is not a font")))
}

impl Plot {
    /// As SVG.
    pub(super) fn svg(&self) -> Result<String> {
        register_font()?;
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, self.size()).into_drawing_area()).map_err(undrawn)?;
        Ok(text)
    }

    /// Writes it as PNG.
    pub(super) fn png(&self, path: &Path) -> Result<()> {
        register_font()?;
        self.draw(&BitMapBackend::new(path, self.size()).into_drawing_area()).map_err(undrawn)
    }

    fn size(&self) -> (u32, u32) {
        match self {
            Plot::Lines(_) => lines::SIZE,
            Plot::Bars(bars) => bars.size(),
        }
    }

    fn draw<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        root.fill(&WHITE)?;
        match self {
            Plot::Lines(lines) => lines.draw(root)?,
            Plot::Bars(bars) => bars.draw(root)?,
        }
        root.present()
    }
}

fn undrawn(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("draw the plot: {error}"))
}
