use super::*;

fn read(path: &Path, form: Option<&Form>) -> Result<Array, Complaint> {
    super::read(path, form, Purpose::Input)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn arrays_round_trip_through_every_kind_of_file() {
    let folder = folder();
    let array = Array::from_slice(&[1_u8, 2, 3, 4, 5, 6]).reshape(vec![2, 3]).unwrap();
    for name in ["a.npy", "a.png", "a.bin"] {
        let path = folder.path().join(name);
        assert_eq!(write(&path, &array).unwrap(), None);
        let form = Form { dtype: Dtype::U8, shape: vec![2, 3] };
        assert_eq!(read(&path, Some(&form)).unwrap(), array, "{name}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no part is left behind");
}

#[test]
fn each_unusable_file_is_reported_with_advice() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let missing = read(&path("none.npy"), None).unwrap_err();
    assert!(missing.message.contains("No such file"), "{}", missing.message);
    fs::write(path("x.bin"), [0; 10]).unwrap();
    assert!(read(&path("x.bin"), None).unwrap_err().hint.unwrap().contains(":f32[1024]"));
    let form = Form { dtype: Dtype::F32, shape: vec![3] };
    let misfit = read(&path("x.bin"), Some(&form)).unwrap_err();
    assert!(misfit.message.ends_with("f32[3] takes 12 bytes, but there are 10"), "{}", misfit.message);
    write(&path("x.npy"), &Array::from_slice(&[1_u8])).unwrap();
    let disagreeing = read(&path("x.npy"), Some(&form)).unwrap_err();
    assert!(disagreeing.message.contains("it holds u8[1], but f32[3] was given"), "{}", disagreeing.message);
}

#[test]
fn an_endless_file_is_refused_and_not_read_to_its_end() {
    let form = Form { dtype: Dtype::U8, shape: vec![4] };
    let refused = read(Path::new("/dev/zero"), Some(&form)).unwrap_err();
    assert_eq!(refused.message, "/dev/zero is larger than 16.0 MiB, the limit for an input without a blob store");
    assert!(refused.hint.unwrap().contains("--blobs"));
    let refused = read_text(Path::new("/dev/zero"), Purpose::Program).unwrap_err();
    assert_eq!(refused.message, "/dev/zero is larger than 8.00 MiB, the limit for a program");
}

#[test]
fn with_a_blob_store_an_input_may_be_larger_than_a_message() {
    let folder = folder();
    let large = Array::from_slice(&vec![7_u8; MESSAGE_BYTES_MAX + (1 << 20)]);
    for name in ["large.npy", "large.bin"] {
        let path = folder.path().join(name);
        write(&path, &large).unwrap();
        let form = Form { dtype: Dtype::U8, shape: large.shape().to_vec() };
        assert!(read(&path, Some(&form)).is_err(), "{name}");
        assert!(super::input(&path, Some(&form), Purpose::Input).is_err(), "{name}");
        let Input::File(file) = super::input(&path, Some(&form), Purpose::Converted).unwrap() else { panic!("{name}") };
        assert_eq!((file.dtype(), file.shape()), (large.dtype(), large.shape()));
    }
    let picture = Array::new(Dtype::U8, vec![5000, 5000], vec![0; 25_000_000]).unwrap();
    let path = folder.path().join("large.png");
    write(&path, &picture).unwrap();
    assert!(read(&path, None).is_err());
    let Input::Array(read) = super::input(&path, None, Purpose::Converted).unwrap() else { panic!("a picture") };
    assert_eq!(read, picture);
    // A hole: the file has no more than its length.
    let path = folder.path().join("beyond.bin");
    let bytes = 8 * BLOBS_BYTES_MAX;
    File::create(&path).unwrap().set_len(bytes).unwrap();
    let form = Form { dtype: Dtype::U8, shape: vec![bytes] };
    assert!(matches!(super::input(&path, Some(&form), Purpose::Converted), Ok(Input::File(_))));
    let refused = super::read(&path, Some(&form), Purpose::Converted).unwrap_err();
    assert!(refused.message.ends_with("is larger than 1.00 GiB, the limit for a file that is converted in memory"));
}

#[test]
fn an_output_that_could_never_be_written_is_refused_before_the_job() {
    let folder = folder();
    assert!(check_writable(folder.path()).is_err());
    assert!(check_writable(&folder.path().join("none").join("y.npy")).unwrap_err().hint.unwrap().contains("mkdir"));
    assert!(check_writable(&folder.path().join("y.npy")).is_ok());
    assert!(check_writable(Path::new("y.npy")).is_ok());
    assert!(check_holds(Path::new("y.npy"), Dtype::Bf16, &[3]).is_err());
    for (dtype, shape) in
        [(Dtype::U8, &[3][..]), (Dtype::U8, &[2, 2, 5]), (Dtype::F32, &[2, 2, 3]), (Dtype::U8, &[1, 1 << 32])]
    {
        assert!(check_holds(Path::new("y.png"), dtype, shape).unwrap_err().hint.unwrap().contains(".npy"), "{shape:?}");
    }
    assert!(check_holds(Path::new("y.png"), Dtype::F32, &[2, 2]).is_ok());
}

#[test]
fn a_file_of_another_format_is_neither_read_nor_written() {
    let folder = folder();
    for name in ["y.csv", "y.CSV", "y.json", "y.npz", "y.jpg"] {
        let path = folder.path().join(name);
        fs::write(&path, [0; 4]).unwrap();
        let form = Form { dtype: Dtype::U8, shape: vec![4] };
        let read = super::input(&path, Some(&form), Purpose::Input).unwrap_err();
        let written = check_writable(&path).unwrap_err();
        assert_eq!(read, written);
        assert!(read.hint.unwrap().contains("y.npy"), "{name}");
    }
    for raw in ["y", "y.bin", "y.dat", "y.f32", "run.3"] {
        assert!(check_writable(Path::new(raw)).is_ok(), "{raw}");
    }
}
