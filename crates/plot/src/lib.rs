//! Plots of experiments, as SVG and PNG.

mod bars;
mod lines;
mod style;

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::style::{FontStyle, WHITE};

pub use bars::{Bars, Panel};
pub use lines::{Curve, Lines};
pub use style::{COLORS, thousands};

use style::FAMILY;

const FONT: &str = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf";
/// What to draw.
pub enum Plot {
    /// Lines over an axis.
    Lines(Lines),
    /// Bars in panels.
    Bars(Bars),
}

/// Makes the font known that measures and draws the text. An error if it is not installed.
pub fn register_font() -> Result<(), PlotError> {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let missing = |_| PlotError::Font;
    if BYTES.get().is_none() {
        let _ = BYTES.set(fs::read(FONT).map_err(missing)?);
    }
    let bytes = BYTES.get().expect("it has just been set");
    plotters::style::register_font(FAMILY, FontStyle::Normal, bytes).map_err(|_| PlotError::Font)
}

impl Plot {
    /// As SVG.
    pub fn svg(&self) -> Result<String, PlotError> {
        register_font()?;
        let mut text = String::new();
        self.draw(&SVGBackend::with_string(&mut text, self.size()).into_drawing_area()).map_err(undrawn)?;
        Ok(text)
    }

    /// Writes it as PNG.
    pub fn png(&self, path: &Path) -> Result<(), PlotError> {
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

fn undrawn(error: impl fmt::Display) -> PlotError {
    PlotError::Undrawn(error.to_string())
}

/// Why there is no plot.
#[derive(Debug)]
pub enum PlotError {
    /// The font that measures and draws the text is not there, or is none.
    Font,
    /// It cannot be drawn, or written.
    Undrawn(String),
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlotError::Font => write!(f, "the plot needs {FONT}, of the package fonts-dejavu-core"),
            PlotError::Undrawn(why) => write!(f, "draw the plot: {why}"),
        }
    }
}

impl std::error::Error for PlotError {}
