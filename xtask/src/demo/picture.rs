//! Reads and writes PNG files.

use std::{fs::File, io::BufReader, path::Path};

use anyhow::{Context as _, ensure};

/// A picture with three bytes per pixel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    pub width: u32,
    pub height: u32,
    pub rgb: Vec<u8>,
}

pub fn write_rgb(path: &Path, picture: &Picture) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("failed to create {}", path.display()))?;
    let mut encoder = png::Encoder::new(std::io::BufWriter::new(file), picture.width, picture.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().with_context(|| format!("failed to write {}", path.display()))?;
    writer
        .write_image_data(&picture.rgb)
        .and_then(|()| writer.finish())
        .with_context(|| format!("failed to write {}", path.display()))
}

/// Reads a colour picture.
pub fn read_rgb(path: &Path) -> anyhow::Result<Picture> {
    let (pixels, info) = read(path)?;
    ensure!(info.color_type == png::ColorType::Rgb, "{} has no three colours", path.display());
    Ok(Picture { width: info.width, height: info.height, rgb: pixels })
}

/// Reads the pixels of a grey picture of this size.
pub fn read_grey(path: &Path, width: u32, height: u32) -> anyhow::Result<Vec<u8>> {
    let (pixels, info) = read(path)?;
    ensure!(
        (info.width, info.height) == (width, height),
        "{} is {}×{} and not {width}×{height}",
        path.display(),
        info.width,
        info.height
    );
    ensure!(info.color_type == png::ColorType::Grayscale, "{} is not grey", path.display());
    Ok(pixels)
}

fn read(path: &Path) -> anyhow::Result<(Vec<u8>, png::OutputInfo)> {
    let file = File::open(path).with_context(|| format!("failed to open {}", path.display()))?;
    let mut reader = png::Decoder::new(BufReader::new(file))
        .read_info()
        .with_context(|| format!("failed to read {}", path.display()))?;
    let mut pixels = vec![0; reader.output_buffer_size().context("the picture is too large")?];
    let info = reader.next_frame(&mut pixels).with_context(|| format!("failed to read {}", path.display()))?;
    Ok((pixels, info))
}
