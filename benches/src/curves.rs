//! Charts of the operations per second of 1 to some number of threads.

use std::error::Error;
use std::path::Path;
use std::thread;

use plotters::prelude::*;

const COLUMNS: usize = 3;
const FONT: &str = "sans-serif";
const COLORS: [RGBColor; 3] = [
    RGBColor(40, 140, 100),
    RGBColor(120, 130, 200),
    RGBColor(220, 160, 80),
];

/// What one line shows in each chart.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// The name of what was measured.
    pub name: &'a str,
    /// For each chart the operations per second of 1, 2 and more threads together.
    pub rates: Vec<Vec<f64>>,
}

/// Returns the median of some measurements; of an even number the upper one.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Draws one chart for each operation, with up to three lines each.
///
/// # Errors
/// If the file cannot be written.
pub fn draw(path: &Path, operations: &[&str], lines: &[Line<'_>]) -> Result<(), Box<dyn Error>> {
    let area = SVGBackend::new(path, (1000, 620)).into_drawing_area();
    area.fill(&WHITE)?;
    let cores = thread::available_parallelism()?;
    let title = format!("Million operations per second, on {cores} virtual cores");
    let area = area.titled(&title, (FONT, 16))?;
    let charts = area.split_evenly((operations.len().div_ceil(COLUMNS), COLUMNS));
    for (at, name) in operations.iter().enumerate() {
        let rates = lines.iter().filter_map(|line| line.rates.get(at));
        let threads = rates.clone().map(Vec::len).max().unwrap_or(0);
        let highest = rates.flatten().copied().fold(0.0, f64::max) / 1e6;
        let mut chart = ChartBuilder::on(&charts[at])
            .caption(*name, (FONT, 14))
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(44)
            .build_cartesian_2d(1..threads, 0.0..highest * 1.15)?;
        chart
            .configure_mesh()
            .x_desc("threads")
            .x_labels(threads)
            .y_labels(6)
            .draw()?;
        for (line, color) in lines.iter().zip(COLORS) {
            let rates = line.rates.get(at).into_iter().flatten();
            let points = (1..).zip(rates.map(|rate| rate / 1e6));
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
                .label(line.name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2))
                });
        }
        if at + 1 == operations.len() {
            // One legend for all charts.
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::LowerRight)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK)
                .label_font((FONT, 12))
                .draw()?;
        }
    }
    area.present()?;
    Ok(())
}
