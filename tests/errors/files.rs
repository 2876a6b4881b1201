//! The files that the commands read.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::Arc,
};

use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
use gpufleet_schema::bounds::BLOB_BYTES_MIN;
use gpufleet_tests::npy;
use parquet::arrow::ArrowWriter;

pub fn write_all(folder: &Path) {
    let write = |name: &str, bytes: &[u8]| fs::write(folder.join(name), bytes).unwrap();
    write("x.npy", &npy("<f4", "(3,)", &[0; 12]));
    write("long.npy", &npy("<f4", "(5,)", &[0; 20]));
    write("wide.npy", &npy("<f8", "(3,)", &[0; 24]));
    write("big-endian.npy", &npy(">f4", "(3,)", &[0; 12]));
    write("complex.npy", &npy("<c8", "(3,)", &[0; 24]));
    write("short.npy", &npy("<f4", "(3,)", &[0; 8]));
    write("cut.npy", &npy("<f4", "(3,)", &[0; 12])[..20]);
    write("noise.npy", b"not NumPy");
    write("huge.npy", &npy("<f4", "(2200000,)", &vec![0; 8_800_000]));
    write("giant.npy", &npy("<f4", "(5000000,)", &vec![0; 20_000_000]));
    write("noise.png", b"not a picture");
    write("k.cu", b"extern \"C\" __global__ void k(float *x) { x[0] = 1; }\n");
    write("wrong.cu", b"extern \"C\" __global__ void k(float *y) {\n    y[0] = undeclared;\n}\n");
    write("wild.cu", b"extern \"C\" __global__ void wild(float *x) {\n    x[threadIdx.x + (1LL << 30)] = 1;\n}\n");
    write("k.ptx", b".version 8.0\n");
    write("wild.ptx", include_bytes!("../harness/ptx/wild_write.ptx"));
    write("endless.ptx", include_bytes!("../harness/ptx/endless.ptx"));
    write("latin.cu", &[0xe9, b'\n']);
    write("short.bin", &[0; 8]);
    write("key", b"not a key\n");
    write("broken.json", b"{ \"program\": ");
    write("list.json", b"[]");
    write("broken.toml", b"program = ");
    write("misspelt.json", b"{ \"program\": { \"catalog\": \"saxpy\" }, \"bufers\": [] }");
    write("no-program.json", b"{ \"buffers\": [] }");
    write("pool.json", b"{ \"program\": { \"catalog\": \"saxpy\" }, \"pool\": \"a.b\" }");
    write("dtype.json", &task(r#"{ "name": "x", "dtype": "f23", "shape": [3], "data": "zeros" }"#));
    write("data.json", &task(r#"{ "name": "x", "dtype": "f32", "shape": [3], "data": "ones" }"#));
    write("nowhere.json", &task(r#"{ "name": "x", "data": { "file": "none.npy" } }"#));
    write("killed.json", KILLED);
    write("in.parquet", &table());
    fs::create_dir(folder.join("begun.parquet.parts")).unwrap();
    write("begun.parquet.parts/settings.json", b"{\"kernel\":\"vector_add\"}");
    for name in ["folder", "locked", "store", "elsewhere", "unplugged"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    write("big.npy", &npy("<f4", "(262144,)", &vec![0; BLOB_BYTES_MIN as usize]));
    write(&format!("store/blake3-{DIGEST}"), &vec![1; BLOB_BYTES_MIN as usize]);
    write("damaged.json", damaged().as_bytes());
    fs::set_permissions(folder.join("locked"), Permissions::from_mode(0o555)).unwrap();
}

/// Returns a Parquet file with columns that saxpy takes and other columns.
fn table() -> Vec<u8> {
    let floats = |first: Option<f32>| Arc::new(Float32Array::from(vec![first, Some(2.0)])) as ArrayRef;
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
    let columns = [("id", ids), ("x", floats(Some(1.0))), ("y", floats(Some(1.0))), ("holes", floats(None))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// The digest of a blob that does not exist.
const DIGEST: &str = "1111111111111111111111111111111111111111111111111111111111111111";

const KILLED: &[u8] = br#"{ "program": { "ptx": { "file": "endless.ptx" } }, "labels": { "case": "killed" },
    "buffers": [{ "name": "y", "dtype": "u32", "shape": [1], "data": "zeros" }],
    "launches": [{ "entry": "endless", "grid": { "blocks": [1] }, "block": { "threads": [1] }, "args": [{ "buffer": "y" }] }],
    "limits": { "attempts_max": 1 } }"#;

fn damaged() -> String {
    let buffer = |name: &str| {
        format!(r#"{{ "name": "{name}", "dtype": "f32", "shape": [262144], "data": {{ "blob": "blake3:{DIGEST}" }} }}"#)
    };
    format!(
        r#"{{ "program": {{ "catalog": "saxpy" }}, "arguments": {{ "a": 2.0 }}, "pool": "stored", "buffers": [{}, {}] }}"#,
        buffer("x"),
        buffer("y")
    )
}

fn task(buffer: &str) -> Vec<u8> {
    let task = r#"{ "program": { "source": { "file": "k.cu" } }, "buffers": [BUFFER],
        "launches": [{ "entry": "k", "grid": { "cover": [3] }, "args": [{ "buffer": "x" }] }] }"#;
    task.replace("BUFFER", buffer).into_bytes()
}
