//! The pictures of the catalog: kernels run by a fleet on the emulated device, each result compared with the CPU's.
//!
//! The Mandelbrot set is also the image that the other two kernels get.

use std::{
    env,
    fs::{self, File},
    io::BufWriter,
    path::Path,
};

use anyhow::{Context as _, ensure};
use gpufleet::{Fleet, Job, JobResult};
use gpufleet_kernels::reference::{self, MandelbrotView};
use png::ColorType;

pub const FOLDER: &str = "docs/src/images/catalog";

pub struct Picture {
    pub kernel: &'static str,
    pub caption: &'static str,
}

/// Every kernel that makes an image.
pub const ALL: [Picture; 3] = [
    Picture {
        kernel: "mandelbrot",
        caption: "The set in 384 × 256 pixels with a step of 1/128, coloured by its iterations.",
    },
    Picture { kernel: "sobel", caption: "The edges of the Mandelbrot picture in grey." },
    Picture {
        kernel: "convolve_2d",
        caption: "The Mandelbrot picture in grey, convolved with a box filter of 11 × 11.",
    },
];

const VIEW: MandelbrotView =
    MandelbrotView { width: 384, height: 256, centre_x: -0.5, centre_y: 0.0, step: 1.0 / 128.0 };
const SIZE: [usize; 2] = [VIEW.height as usize, VIEW.width as usize];
const SHAPE: [u64; 2] = [VIEW.height as u64, VIEW.width as u64];
const ITERATIONS_MAX: u32 = 256;
const FILTER_EXTENT: usize = 11;
/// Of brightnesses up to 255, the kernel's relative tolerance and some.
const BLUR_ERROR_MAX: f32 = 0.01;

/// Renders every picture and tells which files were written.
pub fn render(root: &Path) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Runtime::new().context("failed to start a runtime")?;
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
    runtime.block_on(async {
        let fleet = Fleet::connect(&broker_url()?).await.context("failed to connect to the broker")?;
        let rendered = render_all(&fleet, &folder).await;
        fleet.close().await;
        rendered
    })?;
    Ok(ALL.iter().map(|picture| format!("{FOLDER}/{}.png", picture.kernel)).collect())
}

fn broker_url() -> anyhow::Result<String> {
    if let Ok(url) = env::var("GPUFLEET_AMQP_URL") {
        return Ok(url);
    }
    let running = gpufleet_local::running(&gpufleet_local::state::default_dir()?);
    let running = running.context("no fleet to render on; start one with `gpufleet local up --cuda emulated`")?;
    Ok(running.amqp_url)
}

async fn render_all(fleet: &Fleet, folder: &Path) -> anyhow::Result<()> {
    let iterations = mandelbrot(fleet).await?;
    let colours: Vec<u8> = iterations.iter().flat_map(|count| colour(*count)).collect();
    write_png(&folder.join("mandelbrot.png"), ColorType::Rgb, &colours)?;
    let grey: Vec<u8> = iterations.iter().map(|count| (share(*count) * 255.0) as u8).collect();
    write_png(&folder.join("sobel.png"), ColorType::Grayscale, &sobel(fleet, &grey).await?)?;
    write_png(&folder.join("convolve_2d.png"), ColorType::Grayscale, &blur(fleet, &grey).await?)
}

async fn mandelbrot(fleet: &Fleet) -> anyhow::Result<Vec<u32>> {
    let job = Job::catalog("mandelbrot")
        .scalar("width", VIEW.width)
        .scalar("height", VIEW.height)
        .scalar("centre_x", VIEW.centre_x)
        .scalar("centre_y", VIEW.centre_y)
        .scalar("step", VIEW.step)
        .scalar("max_iterations", ITERATIONS_MAX);
    let iterations = run(fleet, job).await?.output("iterations")?;
    ensure!(iterations == reference::mandelbrot(VIEW, ITERATIONS_MAX), "mandelbrot differs from the CPU's");
    Ok(iterations)
}

async fn sobel(fleet: &Fleet, grey: &[u8]) -> anyhow::Result<Vec<u8>> {
    let edges = run(fleet, Job::catalog("sobel").input_shaped("image", SHAPE, grey)).await?.output("edges")?;
    ensure!(edges == reference::sobel(grey, SIZE), "sobel differs from the CPU's");
    Ok(edges)
}

async fn blur(fleet: &Fleet, grey: &[u8]) -> anyhow::Result<Vec<u8>> {
    let image: Vec<f32> = grey.iter().map(|pixel| f32::from(*pixel)).collect();
    let filter = vec![1.0_f32 / (FILTER_EXTENT * FILTER_EXTENT) as f32; FILTER_EXTENT * FILTER_EXTENT];
    let job = Job::catalog("convolve_2d").input_shaped("image", SHAPE, &image).input_shaped(
        "filter",
        [FILTER_EXTENT as u64; 2],
        &filter,
    );
    let blurred: Vec<f32> = run(fleet, job).await?.output("result")?;
    let expected = reference::convolve_2d(&image, SIZE, &filter, [FILTER_EXTENT; 2]);
    let is_near = |(have, want): (&f32, &f32)| (have - want).abs() <= BLUR_ERROR_MAX;
    ensure!(blurred.iter().zip(&expected).all(is_near), "convolve_2d differs from the CPU's");
    Ok(blurred.into_iter().map(|pixel| pixel.round() as u8).collect())
}

async fn run(fleet: &Fleet, job: Job) -> anyhow::Result<JobResult> {
    let result = fleet.submit(job).await?.await?;
    let emulated = result.ran_on.as_ref().is_some_and(|device| device.emulated);
    ensure!(emulated, "the fleet's device is not emulated; start one with `gpufleet local up --cuda emulated`");
    Ok(result)
}

/// From 0 to 1 by the logarithm of the iterations; 0 inside the set.
fn share(iterations: u32) -> f32 {
    if iterations >= ITERATIONS_MAX { 0.0 } else { (1.0 + iterations as f32).ln() / (1.0 + ITERATIONS_MAX as f32).ln() }
}

/// Dark blue, over orange, to white.
fn colour(iterations: u32) -> [u8; 3] {
    let part = share(iterations);
    if iterations >= ITERATIONS_MAX {
        return [0; 3];
    }
    [1.9 * part - 0.35, 1.3 * part * part, 0.35 + 0.6 * part * part * part]
        .map(|part| (part.clamp(0.0, 1.0) * 255.0) as u8)
}

fn write_png(path: &Path, colours: ColorType, pixels: &[u8]) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("failed to create {}", path.display()))?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), VIEW.width, VIEW.height);
    encoder.set_color(colours);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish().with_context(|| format!("failed to write {}", path.display()))
}
