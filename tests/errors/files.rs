//! The files that the commands name.

use std::{fs, path::Path};

use gpufleet_tests::npy;

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
    fs::create_dir(folder.join("folder")).unwrap();
}

fn task(buffer: &str) -> Vec<u8> {
    let task = r#"{ "program": { "source": { "file": "k.cu" } }, "buffers": [BUFFER],
        "launches": [{ "entry": "k", "grid": { "cover": [3] }, "args": [{ "buffer": "x" }] }] }"#;
    task.replace("BUFFER", buffer).into_bytes()
}
