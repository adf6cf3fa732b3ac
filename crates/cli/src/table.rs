//! Text tables: columns as wide as their longest cell, separated by two blanks.

/// Alignment of cells in a column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// Rows of cells under a header.
pub struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns and no rows. Without any title, there is no header line.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let header: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        let rows = if header.iter().all(String::is_empty) { Vec::new() } else { vec![header] };
        Table { align: columns.iter().map(|(_, align)| *align).collect(), rows }
    }

    /// Adds a row, with a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, each indented by `indent` blanks.
    pub fn render(&self, indent: usize) -> String {
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..self.align.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = " ".repeat(indent);
            for ((cell, width), align) in row.iter().zip(&widths).zip(&self.align) {
                match align {
                    Align::Left => line += &format!("{cell:<width$}  "),
                    Align::Right => line += &format!("{cell:>width$}  "),
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let mut table = Table::new(&[("NODE", Align::Left), ("REQUESTS", Align::Right)]);
        table.row(["n1".to_owned(), "7".to_owned()]);
        table.row(["node-17".to_owned(), "1234567890".to_owned()]);
        assert_eq!(table.render(1), " NODE       REQUESTS\n n1                7\n node-17  1234567890\n");
    }
}
