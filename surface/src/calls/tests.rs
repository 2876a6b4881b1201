//! The class of each row fits its arguments.

macro_rules! check {
    ($area:ident: $(
        $class:ident $($since:literal)? $symbol:ident $(($($argument:ident: $type:ty),*))? $(twin $suffix:ident)?
        $(old $old:ident)?;
    )+) => {
        $(check(stringify!($class), stringify!($symbol), &[$($(stringify!($type)),*)?]);)+
    };
}

fn check(class: &str, symbol: &str, types: &[&str]) {
    let has = |pointers: &[&str]| types.iter().any(|name| pointers.iter().any(|start| name.starts_with(start)));
    let returns = has(&[
        "Out",
        "InOut",
        "TextRoom",
        "Room",
        "Listed",
        "ToHost",
        "JitValues",
        "Allocated",
        "Reserved",
        "Global",
        "FreeBytes",
        "LinkedImage",
        "Frontier",
        "Always",
    ]);
    let fits = match class {
        "post" => !returns && !has(&["New"]),
        "make" => !returns && has(&["New"]),
        "ask" | "wait" | "local" | "refuse" => !has(&["New"]),
        "own" => true,
        "own_post" => !returns,
        _ => false,
    };
    assert!(fits, "{symbol} is not of the class {class}");
}

#[test]
fn only_calls_that_wait_return_what_the_caller_does_not_choose() {
    crate::every_row!(check!);
}
