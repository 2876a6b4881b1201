use super::*;

fn problem<T: FromStr<Err = SpecError> + std::fmt::Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

#[test]
fn a_file_may_have_a_dtype_and_a_shape() {
    let spec: FileSpec = "x=data/x.npy".parse().unwrap();
    assert_eq!((spec.name.as_str(), spec.path.to_str().unwrap(), spec.form), ("x", "data/x.npy", None));
    let spec: FileSpec = "x=run:3/x.bin:f32[1024, 8]".parse().unwrap();
    assert_eq!(spec.path.to_str().unwrap(), "run:3/x.bin");
    assert_eq!(spec.form.unwrap(), Form { dtype: Dtype::F32, shape: vec![1024, 8] });
    let spec: ArraySpec = "run:3/x.bin:u8[4]".parse().unwrap();
    assert_eq!((spec.path.to_str().unwrap(), spec.form.unwrap().dtype), ("run:3/x.bin", Dtype::U8));
    assert_eq!("x=1.npy".parse::<ArraySpec>().unwrap(), ArraySpec { path: "x=1.npy".into(), form: None });
}

#[test]
fn a_form_is_a_dtype_and_positive_extents() {
    assert_eq!("f64[]".parse::<Form>().unwrap().shape, Vec::<u64>::new());
    assert!(problem::<Form>("f33[4]").contains("is not a dtype"));
    assert!(problem::<Form>("f32").contains("such as f32[480,640]"));
    assert!(problem::<Form>("f32[4,0]").contains("zero"));
    assert!(problem::<Form>("f32[4,-1]").contains("\"-1\" is not a whole number"));
    assert!(problem::<Form>("f32[99999999999999999999]").contains("is not a whole number"));
}

#[test]
fn dtypes_have_numpys_names_too() {
    assert_eq!("float32[2]".parse::<Form>().unwrap(), "f32[2]".parse().unwrap());
    assert_eq!("n:uint64=1".parse::<ArgsSpec>().unwrap(), "n:u64=1".parse().unwrap());
    for name in
        ["bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "bfloat16", "float64"]
    {
        assert!(dtype(name).is_ok(), "{name}");
    }
    assert!(dtype("complex64").unwrap_err().to_string().contains("is not a dtype"));
}

#[test]
fn an_incomplete_argument_is_refused_with_the_expected_form() {
    assert_eq!(problem::<FileSpec>("x.npy"), "expected NAME=FILE or NAME=FILE:f32[480,640]");
    assert_eq!(problem::<FileSpec>("x="), "expected NAME=FILE or NAME=FILE:f32[480,640]");
    assert_eq!(problem::<FileSpec>("x=:f32[4]"), "the file name is missing; expected NAME=FILE");
    assert_eq!(problem::<ArraySpec>(""), "the file name is missing; expected FILE or FILE:f32[480,640]");
    assert_eq!(problem::<FillSpec>("x=f32[4]"), "the value is missing; expected NAME=f32[1024]:1.5");
    assert_eq!(problem::<FillSpec>("x=u8[4]:300"), "300 does not fit u8");
    assert_eq!(problem::<ScalarSpec>("a"), "expected NAME=VALUE, such as a=2.0");
    assert_eq!(problem::<ScalarSpec>("a=two"), "\"two\" is not a number");
    assert_eq!(problem::<LabelSpec>("team"), "expected KEY=VALUE, such as team=vision");
}

#[test]
fn extents_are_one_to_three_positive_numbers() {
    assert_eq!("8,8".parse::<Extents<u32>>().unwrap().0, [8, 8]);
    assert!(problem::<Extents<u32>>("8,0").contains("an extent is zero"));
    assert!(problem::<Extents<u32>>("1,2,3,4").contains("4 numbers given"));
    assert!(problem::<Extents<u64>>("").contains("not a whole number"));
    assert_eq!("auto".parse::<BlockSpec>().unwrap().0, Block::Auto);
    assert_eq!("16,16".parse::<BlockSpec>().unwrap().0, Block::Threads(vec![16, 16]));
}

#[test]
fn kernel_arguments_are_buffers_and_typed_scalars_in_order() {
    let args: ArgsSpec = "x, y, n:u32=1000, a:f32=-2.5e3".parse().unwrap();
    let typed = |args: Vec<Arg>| args.into_iter().map(ArgSpec::Typed).collect::<Vec<_>>();
    assert_eq!(
        args.0,
        typed(vec![
            Arg::Buffer("x".to_owned()),
            Arg::Buffer("y".to_owned()),
            Arg::Scalar(Dtype::U32, Number::Signed(1000)),
            Arg::Scalar(Dtype::F32, Number::Float(-2500.0)),
        ])
    );
    let args: ArgsSpec = "x@16,y@0,p:bytes=0000C03f@4".parse().unwrap();
    assert_eq!(
        args.0,
        typed(vec![
            Arg::BufferAt { name: "x".to_owned(), offset: 16 },
            Arg::Buffer("y".to_owned()),
            Arg::Bytes { bytes: vec![0, 0, 0xc0, 0x3f], align: 4 },
        ])
    );
    assert!(problem::<ArgsSpec>("x@y").contains("is not an element number"));
    for half in ["p:bytes=0@1", "p:bytes=@1", "p:bytes=00", "p:bytes=0g@1", "p:bytes=00@a"] {
        assert!(problem::<ArgsSpec>(half).contains("NAME:bytes=HEX@ALIGNMENT"), "{half}");
    }
    for counter in ["@progress:20000", "done=@progress:20000", " done = @progress: 20000 "] {
        assert_eq!(counter.parse::<ArgsSpec>().unwrap().0, typed(vec![Arg::Progress(20_000)]), "{counter}");
    }
    for counter in ["@progress", "done=@progress", "done=@progress:", "done=@progress:0", "done=@progress:1e3"] {
        let problem = problem::<ArgsSpec>(counter);
        assert!(problem.contains("at least 1; expected NAME=@progress:TOTAL"), "{problem}");
    }
    let untyped: ArgsSpec = "x,n=4".parse().unwrap();
    assert_eq!(untyped.0[1], ArgSpec::Untyped { name: "n".to_owned(), value: Number::Signed(4) });
    assert!(problem::<ArgsSpec>("x,=4").contains("has no name"));
    assert!(problem::<ArgsSpec>("x,n=y").contains("\"y\" is not a number"));
    assert!(problem::<ArgsSpec>("x,,y").contains("\"\" is not a parameter"));
    assert!(problem::<ArgsSpec>("n:u32=-1").contains("-1 does not fit u32"));
    assert!(problem::<ArgsSpec>("n:int=1").contains("\"int\" is not a dtype"));
}

#[test]
fn a_column_may_name_its_buffer() {
    let column = |text: &str| text.parse::<ColumnSpec>().map(|spec| (spec.buffer, spec.column));
    assert_eq!(column("price").unwrap(), (None, "price".to_owned()));
    assert_eq!(column(" x = price in € ").unwrap(), (Some("x".to_owned()), "price in €".to_owned()));
    assert_eq!(column("x=a=b").unwrap(), (Some("x".to_owned()), "a=b".to_owned()));
    for text in ["", "x=", "=price"] {
        assert!(column(text).unwrap_err().to_string().contains("x=price,y=fee"), "{text}");
    }
}

#[test]
fn a_duration_carries_its_unit() {
    assert_eq!(duration("90s").unwrap().as_secs(), 90);
    assert!(duration("90").unwrap_err().contains("with a unit"));
    assert!(time_limit("8days").unwrap_err().contains("7days"));
    assert!(duration("99999999999999999999y").unwrap_err().contains("too long"));
    assert!(duration("0s").unwrap_err().contains("longer than zero"));
    for parse in [time_limit, queue_limit, keep] {
        assert_eq!(parse("1ns").unwrap_err(), "at least 1ms");
        assert_eq!(parse("1ms").unwrap().as_millis(), 1);
    }
}

#[test]
fn a_name_has_a_character_that_shows() {
    assert_eq!(name("first try").unwrap(), "first try");
    for empty in ["", "  "] {
        assert!(name(empty).unwrap_err().contains("leave the option out"));
    }
}

#[test]
fn a_number_beyond_its_bounds_is_refused_with_them() {
    assert_eq!(whole(1..=64)("64"), Ok(64));
    for text in ["0", "65", "-1", "many"] {
        assert_eq!(whole(1..=64)(text).unwrap_err(), "expected a whole number from 1 to 64");
    }
    assert_eq!(whole(1..=u32::MAX)("0").unwrap_err(), "expected a whole number, at least 1");
}

#[test]
fn infinity_is_written_out() {
    let value = |text: &str| text.parse::<ScalarSpec>().map(|scalar| scalar.value);
    assert_eq!(value("a=-inf").unwrap(), Number::Float(f64::NEG_INFINITY));
    assert_eq!(value("a=1e300").unwrap(), Number::Float(1e300));
    assert!(value("a=1e400").unwrap_err().to_string().contains("too large"));
}
