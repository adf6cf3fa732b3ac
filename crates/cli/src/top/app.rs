//! State of `top`, and its changes by keys. It does not depend on a terminal.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use switchback_admin::View;
use switchback_admin::view::NodeRow;

use super::cells::COLUMNS;

/// Rows that a page key moves.
const PAGE: usize = 10;

/// The state of the display.
pub struct App {
    pub view: View,
    /// Why the switch did not answer last time.
    pub trouble: Option<String>,
    /// Index of the sort column in [`COLUMNS`]; None: the order of the configuration.
    pub sorted_by: Option<usize>,
    pub is_descending: bool,
    /// Nodes above the first shown one.
    pub scroll: usize,
    pub helps: bool,
    pub is_over: bool,
}

impl App {
    pub fn new(view: View) -> App {
        App {
            view,
            trouble: None,
            sorted_by: None,
            is_descending: true,
            scroll: 0,
            helps: false,
            is_over: false,
        }
    }

    /// Takes an answer of the switch, or its failure.
    pub fn tell(&mut self, answer: Result<View, String>) {
        match answer {
            Ok(view) => (self.view, self.trouble) = (view, None),
            Err(error) => self.trouble = Some(error),
        }
        self.scroll_by(0);
    }

    /// Handles an event of the terminal.
    pub fn on(&mut self, event: &Event) {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return };
        match code {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => self.is_over = true,
            KeyCode::Char('?' | 'h') => self.helps = !self.helps,
            // The first key only closes the help.
            KeyCode::Char('q') | KeyCode::Esc if self.helps => self.helps = false,
            KeyCode::Char('q') | KeyCode::Esc => self.is_over = true,
            KeyCode::Char('r') => self.is_descending = !self.is_descending,
            KeyCode::Right => self.sort(1),
            KeyCode::Left => self.sort(-1),
            KeyCode::Down => self.scroll_by(1),
            KeyCode::Up => self.scroll_by(-1),
            KeyCode::PageDown => self.scroll_by(PAGE.cast_signed()),
            KeyCode::PageUp => self.scroll_by(-PAGE.cast_signed()),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll_by(isize::MAX),
            _ => {}
        }
    }

    /// Moves the sort column; between the last and the first column there is the order of the configuration.
    fn sort(&mut self, by: isize) {
        let places = COLUMNS.len() as isize + 1;
        let now = self.sorted_by.map_or(0, |index| index as isize + 1);
        let next = (now + by).rem_euclid(places);
        self.sorted_by = usize::try_from(next - 1).ok();
    }

    fn scroll_by(&mut self, rows: isize) {
        let last = self.view.nodes.len().saturating_sub(1);
        self.scroll = self.scroll.saturating_add_signed(rows).min(last);
    }

    /// The nodes in the order of the display.
    pub fn nodes(&self) -> Vec<&NodeRow> {
        let mut nodes: Vec<&NodeRow> = self.view.nodes.iter().collect();
        if let Some(column) = self.sorted_by.map(|index| &COLUMNS[index]) {
            nodes.sort_by(|a, b| {
                let order = (column.compare)(a, b);
                if self.is_descending { order.reverse() } else { order }
            });
        }
        nodes
    }
}
