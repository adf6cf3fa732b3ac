//! Figures that have no axis in common: a panel for each, in it a bar for each name.

use plotters::backend::DrawingBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{BLACK, Color, IntoFont, TextStyle};

use super::style::{COLORS, FAMILY, TEXT_SIZE, TITLE_SIZE};

/// Of a letter, generously.
const LETTER_WIDTH: i32 = 8;
/// Of the titles of panels.
const TITLE_HEIGHT: i32 = 32;
/// Of the title of the plot.
const HEAD_HEIGHT: i32 = 30;
const BAR_HEIGHT: i32 = 24;
const BAR_GAP: i32 = 6;
/// Right of the longest bar, for its figure.
const FIGURE_WIDTH: i32 = 80;
const MARGIN: i32 = 15;

/// Bars beside each other in several panels, with the same names.
pub struct Bars {
    /// Above the panels.
    pub title: String,
    /// Of the rows, from the top, each with the number of its color.
    pub names: Vec<(String, usize)>,
    /// Whether the lengths of different panels compare.
    pub one_scale: bool,
    /// Beside each other.
    pub panels: Vec<Panel>,
}

/// Bars that compare with each other.
pub struct Panel {
    /// With the unit.
    pub title: String,
    /// For each name its length and what is written beside it, if there is one.
    pub bars: Vec<Option<(f64, String)>>,
}

impl Panel {
    fn longest(&self) -> f64 {
        self.bars.iter().flatten().map(|(length, _)| *length).fold(f64::MIN_POSITIVE, f64::max)
    }
}

impl Bars {
    pub(super) fn size(&self) -> (u32, u32) {
        let rows = self.names.len() as i32 * (BAR_HEIGHT + BAR_GAP);
        (900, (HEAD_HEIGHT + TITLE_HEIGHT + rows + 2 * MARGIN) as u32)
    }

    pub(super) fn draw<B: DrawingBackend>(
        &self,
        root: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let root = &root.titled(&self.title, (FAMILY, TITLE_SIZE))?;
        let style = |h, v| TextStyle::from((FAMILY, TEXT_SIZE).into_font()).color(&BLACK).pos(Pos::new(h, v));
        let (beside, above) = (style(HPos::Left, VPos::Center), style(HPos::Left, VPos::Top));
        let top = |row: usize| MARGIN + TITLE_HEIGHT + row as i32 * (BAR_HEIGHT + BAR_GAP);
        for (row, (name, _)) in self.names.iter().enumerate() {
            root.draw(&Text::new(name.clone(), (MARGIN, top(row) + BAR_HEIGHT / 2), beside.clone()))?;
        }
        let letters = self.names.iter().map(|(name, _)| name.chars().count() as i32);
        let names = letters.max().unwrap_or(0) * LETTER_WIDTH + 2 * MARGIN;
        let width = (self.size().0 as i32 - names - MARGIN) / self.panels.len().max(1) as i32;
        let longest = self.panels.iter().map(Panel::longest).fold(0.0, f64::max);
        for (index, panel) in self.panels.iter().enumerate() {
            let left = names + index as i32 * width;
            root.draw(&Text::new(panel.title.clone(), (left, MARGIN), above.clone()))?;
            let longest = if self.one_scale { longest } else { panel.longest() };
            let unit = f64::from(width - FIGURE_WIDTH) / longest;
            for (row, bar) in panel.bars.iter().enumerate() {
                let Some((length, figure)) = bar else { continue };
                let right = left + (length * unit).round().max(1.0) as i32;
                let color = COLORS[self.names[row].1].filled();
                root.draw(&Rectangle::new([(left, top(row)), (right, top(row) + BAR_HEIGHT)], color))?;
                let at = (right + BAR_GAP, top(row) + BAR_HEIGHT / 2);
                root.draw(&Text::new(figure.clone(), at, beside.clone()))?;
            }
        }
        Ok(())
    }
}
