//! Plots of the measurements as SVG.

use std::path::Path;

use plotters::prelude::*;

use crate::BoxError;
use crate::report::Report;
use crate::scaling::Curve;
use crate::scenario::Unit;

const FONT: &str = "sans-serif";

/// Draws the CPU time of each server as bars, as a multiple of the CPU time of the null server.
pub(crate) fn comparison(report: &Report, path: &Path) -> Result<(), BoxError> {
    const ROW_PIXELS: u32 = 46;
    let rows: Vec<_> = report
        .scenarios()
        .filter(|it| it.unit == Unit::CpuMicroseconds)
        .filter_map(|it| {
            Some((
                it.name,
                report.value(it.name, "null").filter(|null| *null > 0.0)?,
            ))
        })
        .collect();
    let servers: Vec<_> = report
        .servers()
        .into_iter()
        .filter(|it| *it != "null")
        .collect();
    let max = rows
        .iter()
        .flat_map(|(name, null)| {
            servers
                .iter()
                .filter_map(move |it| Some(report.value(name, it)? / null))
        })
        .fold(2.0, f64::max);
    let count = u32::try_from(rows.len())?;
    let area = SVGBackend::new(path, (820, 90 + ROW_PIXELS * count)).into_drawing_area();
    area.fill(&WHITE)?;
    let rows_end = f64::from(count);
    let mut chart = ChartBuilder::on(&area)
        .caption(
            "Server CPU time, as a multiple of the null server",
            (FONT, 16),
        )
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(230)
        .build_cartesian_2d((0.3..max * 1.2).log_scale(), rows_end..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .y_labels(0)
        .x_label_formatter(&|times| format!("{times} x"))
        .draw()?;
    for (row, (name, _)) in (0_u32..).zip(&rows) {
        let (x, y) = chart.backend_coord(&(0.3, f64::from(row) + 0.5));
        let style = (FONT, 13).into_font().color(&BLACK);
        area.draw(&Text::new(*name, (x - 222, y - 7), style))?;
    }
    for (index, server) in (0_u32..).zip(&servers) {
        let color = color_of(server);
        let height = 0.8 / f64::from(u32::try_from(servers.len())?);
        let bars = (0_u32..).zip(&rows).filter_map(|(row, (name, null))| {
            let top = f64::from(row) + 0.1 + height * f64::from(index);
            let times = report.value(name, server)? / null;
            Some(Rectangle::new(
                [(0.3, top), (times, top + height)],
                color.filled(),
            ))
        });
        chart
            .draw_series(bars)?
            .label(*server)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    chart.draw_series([PathElement::new([(1.0, 0.0), (1.0, rows_end)], BLACK)])?;
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK)
        .label_font((FONT, 13))
        .draw()?;
    area.present()?;
    Ok(())
}

fn color_of(server: &str) -> RGBColor {
    match server {
        "etcd" => RGBColor(120, 130, 200),
        "mem_etcd" => RGBColor(220, 160, 80),
        "before" => RGBColor(150, 150, 150),
        _ => RGBColor(40, 140, 100),
    }
}

/// Draws curves over logarithmic axes.
pub(crate) fn curves(
    title: &str,
    x_label: &str,
    curves: &[Curve],
    path: &Path,
) -> Result<(), BoxError> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let (mut right, mut low, mut high) = (1.0_f64, f64::MAX, 0.0_f64);
    let mut left = f64::MAX;
    for (x, y) in points() {
        (left, right) = (left.min(*x), right.max(*x));
        (low, high) = (low.min(*y), high.max(*y));
    }
    let area = SVGBackend::new(path, (760, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, (FONT, 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(
            (left..right).log_scale(),
            (low * 0.5..high * 2.0).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc("nanoseconds")
        .x_label_formatter(&|x| format!("{x}"))
        .y_label_formatter(&|y| format!("{y}"))
        .draw()?;
    for (index, curve) in curves.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        chart
            .draw_series(
                LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)).point_size(3),
            )?
            .label(curve.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .label_font((FONT, 12))
        .draw()?;
    area.present()?;
    Ok(())
}
