//! What all plots have in common: font, colors, numbers.

use plotters::style::RGBColor;

/// Family of the registered font.
pub(super) const FAMILY: &str = "sans-serif";
/// Size of text, in pixels.
pub(super) const TEXT_SIZE: i32 = 15;
/// Size of a plot's title, in pixels.
pub(super) const TITLE_SIZE: i32 = 18;

/// Distinct in print and for those who do not see red and green apart (Okabe and Ito's palette).
pub const COLORS: [RGBColor; 8] = [
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(150, 150, 150),
];

/// `12,345`; below 1000 with one decimal, as it matters there.
pub fn thousands(value: f64) -> String {
    if value < 1000.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        assert_eq!([999.94, 1000.0, 1234567.8].map(thousands), ["999.9", "1,000", "1,234,568"]);
    }
}
