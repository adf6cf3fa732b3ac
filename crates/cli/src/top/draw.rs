//! Layout of `top`. In a small terminal, columns are dropped from the right, then errors and latencies.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};
use switchback_access_log::escape::is_printable;
use switchback_admin::View;
use switchback_admin::view::NodeRow;

use super::app::App;
use super::cells::{self, COLUMNS};
use crate::status::{SWITCH, SWITCH_TEXTS, of_switch};

const THERE: Color = Color::Blue;
const BACK: Color = Color::Yellow;
const BAD: Color = Color::Red;
/// Nodes that have room before all other tables.
const NODES: u16 = 10;
/// Most errors and services that are shown.
const FEW: usize = 5;
/// Most switches that are shown.
const SWITCHES: usize = 16;

const HELP: [(&str, &str); 7] = [
    ("left, right", "the column to sort by"),
    ("r", "the other way around"),
    ("up, down", "scroll the nodes"),
    ("page up, page down, home, end", "likewise, further"),
    ("?, h", "this help"),
    ("q, escape, ctrl-c", "end"),
    ("BACK", "what nodes send straight to the clients"),
];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let view = &app.view;
    let (drains, warnings) = (cells::drains(view), cells::warnings(view));
    let latencies = view.latencies.as_deref().unwrap_or_default();
    // With a blank line and the titles.
    let nodes_lines = view.nodes.len() as u16 + 2;
    let mut left = frame.area().height.saturating_sub(2);
    // In order of importance, each with its lines: a blank one, a title, rows.
    let mut room = |rows: usize, titled: u16| {
        let wanted = if rows == 0 { 0 } else { rows as u16 + titled + 1 };
        let fits = left >= wanted + NODES.min(nodes_lines);
        left -= if fits { wanted } else { 0 };
        if fits { wanted } else { 0 }
    };
    let warning_lines = room(warnings.len(), 0);
    let drain_lines = room(drains.len(), 0);
    let switch_lines = room(view.switches.len().min(SWITCHES), 1);
    let error_lines = room(view.errors.len().min(FEW), 1);
    let latency_lines = room(latencies.len().min(FEW), 1);
    let service_lines = room(view.services.len().min(FEW), 1);
    let [title, headline, warning, services, nodes, drain, switches, latency, errors] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(warning_lines),
        Constraint::Length(service_lines),
        Constraint::Length(nodes_lines.min(left)),
        Constraint::Length(drain_lines),
        Constraint::Length(switch_lines),
        Constraint::Length(latency_lines),
        Constraint::Length(error_lines),
    ])
    .areas(frame.area());
    frame.render_widget(first_line(app, title.width), title);
    frame.render_widget(Paragraph::new(second_line(view)), headline);
    let warnings: Vec<Line<'_>> = warnings.into_iter().map(|line| Line::from(line).fg(BAD)).collect();
    frame.render_widget(Paragraph::new(warnings), below(warning));
    few(frame, services, &cells::SERVICE, 2, view.services.iter().map(|row| cells::service(row).to_vec()));
    self::nodes(frame, nodes, app);
    let drains: Vec<Line<'_>> = drains.into_iter().map(|line| Line::from(line).magenta()).collect();
    frame.render_widget(Paragraph::new(drains), below(drain));
    let rows = view.switches.iter().map(|switch| of_switch(switch, view.nodes.len()).to_vec());
    few(frame, switches, &SWITCH, SWITCH_TEXTS, rows);
    few(frame, latency, &cells::LATENCY, 2, latencies.iter().map(|row| cells::latency(row).to_vec()));
    few(frame, errors, &cells::ERROR, 0, view.errors.iter().map(|row| cells::error(row).to_vec()));
    if app.helps {
        help(frame);
    }
    cover(frame.buffer_mut());
}

/// Replaces characters that control a terminal: ratatui removes only the controls of ASCII and C1.
fn cover(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().chars().all(is_printable) {
            cell.set_char(char::REPLACEMENT_CHARACTER);
        }
    }
}

fn first_line(app: &App, width: u16) -> Line<'static> {
    let said = match &app.trouble {
        Some(trouble) => Span::styled(trouble.clone(), Style::new().fg(BAD).bold()),
        None => Span::raw(cells::title(&app.view)),
    };
    let keys = "? help  q end";
    let name = "switchback ";
    let used = name.len() + said.width() + keys.len();
    let gap = usize::from(width).saturating_sub(used).max(1);
    Line::from(vec![name.bold(), said, " ".repeat(gap).into(), keys.dim()])
}

fn second_line(view: &View) -> Line<'static> {
    let colors = [THERE, BACK, BACK, Color::Reset, Color::Reset, BAD];
    let mut spans = Vec::new();
    for ((name, value), color) in cells::headline(view).into_iter().zip(colors) {
        let is_fine = value == "0" || value == "0.0";
        let color = if color == BAD && is_fine { Color::Reset } else { color };
        spans.push(Span::styled(value, Style::new().fg(color).bold()));
        spans.push(format!(" {name}  ").dim());
    }
    Line::from(spans)
}

/// The area without its first line.
fn below(area: Rect) -> Rect {
    Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area }
}

/// Draws a table with columns as wide as needed. The first `texts` columns are texts; if there are none, the last is.
fn few(
    frame: &mut Frame<'_>,
    area: Rect,
    titles: &[&str],
    texts: usize,
    rows: impl Iterator<Item = Vec<String>>,
) {
    if area.height == 0 {
        return;
    }
    // With a blank line and the titles.
    let rows: Vec<Vec<String>> = rows.take(usize::from(area.height.saturating_sub(2))).collect();
    let width = |index: usize| {
        let cells = rows.iter().map(|row| row[index].chars().count());
        cells.chain([titles[index].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let is_text = |index: usize| if texts == 0 { index + 1 == titles.len() } else { index < texts };
    let cell = |index: usize, text: &str| {
        let width = widths[index];
        if is_text(index) { format!("{text:<width$}") } else { format!("{text:>width$}") }
    };
    let line = |row: &[String]| Row::new(row.iter().enumerate().map(|(index, text)| cell(index, text)));
    let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
    let constraints = widths.iter().map(|width| Constraint::Length(*width as u16));
    let table = Table::new(rows.iter().map(|row| line(row)), constraints).header(line(&titles).dim());
    frame.render_widget(table.column_spacing(2), below(area));
}

fn nodes(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let area = below(area);
    let nodes = app.nodes();
    let longest = nodes.iter().map(|node| node.name.chars().count()).max().unwrap_or(0).min(30) as u16;
    let columns = columns_in(area.width, longest);
    let width = |index: usize| if index == 0 { longest.max(COLUMNS[0].width) } else { COLUMNS[index].width };
    let titles = columns.iter().map(|&index| {
        let sorted = app.sorted_by == Some(index);
        let sign = if app.is_descending { "v" } else { "^" };
        let title =
            if sorted { format!("{}{sign}", COLUMNS[index].title) } else { COLUMNS[index].title.to_owned() };
        let style = if sorted { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new().dim() };
        Span::styled(aligned(index, &title, width(index)), style)
    });
    let titles: Vec<Span<'_>> = titles.collect();
    let shown = usize::from(area.height.saturating_sub(1));
    // The last page is a full one.
    let first = app.scroll.min(nodes.len().saturating_sub(shown));
    let rows = nodes.iter().skip(first).take(shown).map(|node| {
        let cell = |&index: &usize| {
            let text = aligned(index, &(COLUMNS[index].cell)(node), width(index));
            Span::styled(text, style_of(index, node))
        };
        Row::new(columns.iter().map(cell).collect::<Vec<_>>())
    });
    let widths: Vec<Constraint> = columns.iter().map(|&index| Constraint::Length(width(index))).collect();
    let table = Table::new(rows, widths).header(Row::new(titles)).column_spacing(1);
    frame.render_widget(table, area);
    let beyond = nodes.len().saturating_sub(first + shown);
    if (beyond > 0 || first > 0) && area.height > 1 {
        let text = format!(" {first} above, {beyond} below ");
        let [place] = Layout::horizontal([Constraint::Length(text.len() as u16)])
            .flex(ratatui::layout::Flex::End)
            .areas(Rect { y: area.y.saturating_sub(1), height: 1, ..area });
        frame.render_widget(Paragraph::new(text.dim()), place);
    }
}

/// The columns that fit the width.
fn columns_in(width: u16, name: u16) -> Vec<usize> {
    let mut columns: Vec<usize> = (0..COLUMNS.len()).collect();
    let needed = |columns: &[usize]| {
        let widths = columns.iter().map(|&index| COLUMNS[index].width + 1);
        widths.sum::<u16>() + name.saturating_sub(COLUMNS[0].width)
    };
    while needed(&columns) > width + 1 && columns.len() > 2 {
        let least = columns.iter().copied().max_by_key(|&index| (COLUMNS[index].rank, index));
        columns.retain(|&index| Some(index) != least);
    }
    columns
}

fn aligned(index: usize, text: &str, width: u16) -> String {
    let width = usize::from(width);
    let text: String = text.chars().take(width).collect();
    if index < 2 { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

fn style_of(index: usize, node: &NodeRow) -> Style {
    let is_full = node.queue.is_some_and(|(len, limit)| u64::from(len) * 10 > u64::from(limit) * 9);
    match COLUMNS[index].title {
        "STATE" => Style::new().fg(match &node.state[..] {
            "up" => Color::Green,
            "draining" => Color::Magenta,
            "unused" => Color::Reset,
            _ => BAD,
        }),
        "REQ/S" => Style::new().fg(THERE),
        "RESP/S" | "BACK" => Style::new().fg(BACK),
        "FAIL/S" if node.failures_per_s > Some(0.0) => Style::new().fg(BAD).bold(),
        "QUEUE" if is_full => Style::new().fg(BAD).bold(),
        _ => Style::new(),
    }
}

fn help(frame: &mut Frame<'_>) {
    let keys = HELP.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    let lines = HELP.map(|(key, what)| Line::from(vec![format!("{key:<keys$}  ").bold(), what.into()]));
    let width = lines.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
    let area = frame.area().centered(Constraint::Length(width), Constraint::Length(HELP.len() as u16 + 2));
    frame.render_widget(Clear, area);
    frame.render_widget(Block::bordered().title(" switchback top "), area);
    frame.render_widget(Paragraph::new(lines.to_vec()), area.inner(Margin { horizontal: 2, vertical: 1 }));
}
