//! `printf` in kernels: formats like C, from arguments that `vprintf` lays out in memory. Text is bytes, because a
//! kernel may print text that is not UTF-8.

/// Maximum bytes of a line: a device's buffer; a longer line is truncated.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Maximum digits and padding of a conversion; C guarantees 4095.
const WIDTH_MAX: usize = 4095;

/// One conversion, from its percent sign to its letter.
#[derive(Debug, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
    /// Bytes of an integer argument; for `h` and `hh` fewer than it takes in memory.
    bytes: u32,
    letter: u8,
}

/// The output of a conversion, without padding.
#[derive(Debug)]
struct Body {
    /// Sign and `0x`, which precede zeros that fill the width.
    prefix: Vec<u8>,
    rest: Vec<u8>,
    takes_zeros: bool,
}

impl Body {
    fn text(rest: Vec<u8>) -> Body {
        Body { prefix: Vec::new(), rest, takes_zeros: false }
    }
}

/// Returns the text, and how many arguments it used. `value` reads bytes at an offset among the arguments, `text` a
/// string.
pub fn format<E>(
    pattern: &[u8],
    value: impl Fn(u64, u64) -> Result<u64, E>,
    text: impl Fn(u64) -> Result<Vec<u8>, E>,
) -> Result<(Vec<u8>, u32), E> {
    let (mut out, mut at, mut offset, mut count) = (Vec::new(), 0, 0u64, 0);
    let mut take = |bytes: u64| -> Result<u64, E> {
        offset = offset.next_multiple_of(bytes);
        offset += bytes;
        value(offset - bytes, bytes)
    };
    while at < pattern.len() && out.len() < LINE_BYTES_MAX {
        if pattern[at] != b'%' {
            out.push(pattern[at]);
            at += 1;
            continue;
        }
        let (mut conversion, length, stars) = parse(&pattern[at..]);
        at += length;
        if stars.0 {
            let width = take(4)? as u32 as i32;
            conversion.left |= width < 0;
            conversion.width = (width.unsigned_abs() as usize).min(WIDTH_MAX);
        }
        if stars.1 {
            conversion.precision = usize::try_from(take(4)? as u32 as i32).ok().map(|p| p.min(WIDTH_MAX));
        }
        let integer = |take: &mut dyn FnMut(u64) -> Result<u64, E>| take(u64::from(conversion.bytes.max(4)));
        let body = match conversion.letter {
            b'd' | b'i' => {
                let unused = 64 - 8 * conversion.bytes;
                signed_integer(&conversion, (integer(&mut take)? << unused).cast_signed() >> unused)
            }
            b'u' | b'x' | b'X' | b'o' => {
                let unused = 64 - 8 * conversion.bytes;
                unsigned(&conversion, integer(&mut take)? << unused >> unused)
            }
            b'c' => Body::text(vec![take(4)? as u8]),
            b'p' => match take(8)? {
                0 => Body::text(b"(nil)".to_vec()),
                address => unsigned(&Conversion { letter: b'x', alternate: true, ..conversion }, address),
            },
            b's' => {
                let address = take(8)?;
                let mut bytes = if address == 0 { b"(null)".to_vec() } else { text(address)? };
                bytes.truncate(conversion.precision.unwrap_or(usize::MAX));
                Body::text(bytes)
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A' => float(&conversion, f64::from_bits(take(8)?)),
            b'%' => {
                out.push(b'%');
                continue;
            }
            _ => Body::text(pattern[at - length..at].to_vec()),
        };
        count += 1;
        pad(&mut out, &conversion, body);
    }
    out.truncate(LINE_BYTES_MAX);
    Ok((out, count))
}

/// Parses a conversion; returns it, its length, and whether width and precision are arguments.
fn parse(text: &[u8]) -> (Conversion, usize, (bool, bool)) {
    let mut conversion = Conversion { bytes: 4, ..Conversion::default() };
    let mut stars = (false, false);
    let mut at = 1;
    let peek = |at: usize| text.get(at).copied().unwrap_or(0);
    loop {
        match peek(at) {
            b'-' => conversion.left = true,
            b'+' => conversion.plus = true,
            b' ' => conversion.space = true,
            b'#' => conversion.alternate = true,
            b'0' => conversion.zero = true,
            _ => break,
        }
        at += 1;
    }
    let number = |at: &mut usize| {
        let mut value = 0usize;
        while peek(*at).is_ascii_digit() {
            value = (value * 10 + usize::from(peek(*at) - b'0')).min(WIDTH_MAX);
            *at += 1;
        }
        value
    };
    if peek(at) == b'*' {
        stars.0 = true;
        at += 1;
    } else {
        conversion.width = number(&mut at);
    }
    if peek(at) == b'.' {
        at += 1;
        if peek(at) == b'*' {
            stars.1 = true;
            at += 1;
        } else {
            conversion.precision = Some(number(&mut at));
        }
    }
    while matches!(peek(at), b'l' | b'h' | b'z' | b't' | b'j' | b'q') {
        conversion.bytes = if peek(at) == b'h' { (conversion.bytes / 2).max(1) } else { 8 };
        at += 1;
    }
    conversion.letter = peek(at);
    (conversion, (at + 1).min(text.len()), stars)
}

fn sign(conversion: &Conversion, negative: bool) -> Vec<u8> {
    match (negative, conversion.plus, conversion.space) {
        (true, ..) => b"-".to_vec(),
        (_, true, _) => b"+".to_vec(),
        (_, _, true) => b" ".to_vec(),
        _ => Vec::new(),
    }
}

/// Formats an integer. With a precision, no zeros fill the width.
fn integer(conversion: &Conversion, prefix: Vec<u8>, digits: String) -> Body {
    let least = conversion.precision.unwrap_or(1);
    let digits = if digits == "0" { String::new() } else { digits };
    Body { prefix, rest: format!("{digits:0>least$}").into_bytes(), takes_zeros: conversion.precision.is_none() }
}

fn signed_integer(conversion: &Conversion, raw: i64) -> Body {
    integer(conversion, sign(conversion, raw < 0), raw.unsigned_abs().to_string())
}

fn unsigned(conversion: &Conversion, raw: u64) -> Body {
    let (prefix, digits) = match conversion.letter {
        b'x' => ("0x", format!("{raw:x}")),
        b'X' => ("0X", format!("{raw:X}")),
        b'o' => ("", format!("{raw:o}")),
        _ => ("", raw.to_string()),
    };
    let prefix = if conversion.alternate && raw != 0 { prefix } else { "" };
    let mut body = integer(conversion, prefix.as_bytes().to_vec(), digits);
    if conversion.letter == b'o' && conversion.alternate && body.rest.first() != Some(&b'0') {
        body.rest.insert(0, b'0');
    }
    body
}

fn float(conversion: &Conversion, number: f64) -> Body {
    let mut prefix = sign(conversion, number.is_sign_negative());
    let value = number.abs();
    let precision = conversion.precision.unwrap_or(6);
    let written = match conversion.letter.to_ascii_lowercase() {
        _ if value.is_nan() => "nan".to_owned(),
        _ if value.is_infinite() => "inf".to_owned(),
        b'f' => format!("{value:.precision$}"),
        b'e' => scientific(value, precision),
        b'g' => general(value, precision.max(1), conversion.alternate),
        _ => {
            prefix.extend(b"0x");
            hexadecimal(value, conversion.precision)
        }
    };
    let written = if conversion.alternate && value.is_finite() { with_point(written) } else { written };
    let mut body = Body { prefix, rest: written.into_bytes(), takes_zeros: value.is_finite() };
    if conversion.letter.is_ascii_uppercase() {
        body.prefix.make_ascii_uppercase();
        body.rest.make_ascii_uppercase();
    }
    body
}

/// Adds a decimal point if there is none, before the exponent.
fn with_point(mut written: String) -> String {
    if !written.contains('.') {
        let at = written.find(['e', 'p']).unwrap_or(written.len());
        written.insert(at, '.');
    }
    written
}

/// Formats `d.ddde+XX`.
fn scientific(value: f64, precision: usize) -> String {
    let written = format!("{value:.precision$e}");
    let (digits, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    let rounded = scientific(value, precision - 1);
    let exponent: i32 = rounded.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let strip = |digits: &str| match digits.contains('.') && !keep_zeros {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let (digits, power) = rounded.split_once('e').unwrap_or((&rounded, "+00"));
        return format!("{}e{power}", strip(digits));
    }
    let places = (precision as i32 - 1 - exponent).max(0) as usize;
    strip(&format!("{value:.places$}"))
}

/// Formats `h.hhhp+d`, by default with all digits of the value.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & FRACTION);
    let (lead, power) = match (exponent, fraction) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        _ => (1, exponent - 1023),
    };
    let significand = round_to_even(lead << 52 | fraction, precision.map_or(0, |digits| 52 - 4 * digits.min(13)));
    let digits = format!("{:013x}", significand & FRACTION);
    let digits = match precision {
        Some(precision) => format!("{digits:0<precision$}")[..precision].to_owned(),
        None => digits.trim_end_matches('0').to_owned(),
    };
    let point = if digits.is_empty() { "" } else { "." };
    format!("{}{point}{digits}p{power:+}", significand >> 52)
}

/// Clears `bits` low bits; rounds to nearest, ties to even.
fn round_to_even(value: u64, bits: usize) -> u64 {
    let (kept, rest, half) = (value >> bits, value & ((1 << bits) - 1), (1 << bits) >> 1);
    let up = rest > half || rest == half && bits > 0 && kept & 1 == 1;
    (kept + u64::from(up)) << bits
}

fn pad(out: &mut Vec<u8>, conversion: &Conversion, Body { prefix, rest, takes_zeros }: Body) {
    let missing = conversion.width.saturating_sub(prefix.len() + rest.len());
    let zeros = conversion.zero && takes_zeros && !conversion.left;
    let [before, between, behind] = match (conversion.left, zeros) {
        (true, _) => [0, 0, missing],
        (false, true) => [0, missing, 0],
        (false, false) => [missing, 0, 0],
    };
    out.resize(out.len() + before, b' ');
    out.extend(prefix);
    out.resize(out.len() + between, b'0');
    out.extend(rest);
    out.resize(out.len() + behind, b' ');
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use super::format;

    fn print(pattern: &str, arguments: &[u64]) -> String {
        let value = |offset: u64, _| Ok::<u64, Infallible>(arguments[offset as usize / 8]);
        // All arguments of these tests have 8 bytes.
        let bytes = format(pattern.as_bytes(), value, |_| Ok(b"text".to_vec())).unwrap().0;
        bytes.iter().map(|byte| char::from(*byte)).collect()
    }

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        assert_eq!(print("[%5d] 100%%", &[42]), "[   42] 100%");
        assert_eq!(print("%-6ld|%+ld|%06ld", &[-3i64 as u64, 5, -42i64 as u64]), "-3    |+5|-00042");
        assert_eq!(print("%#llx %llX %lo", &[255, 255, 8]), "0xff FF 10");
        assert_eq!(
            print("%f %.2f %e", &[1.5f64.to_bits(), 2.0f64.to_bits(), 12345.678f64.to_bits()]),
            "1.500000 2.00 1.234568e+04"
        );
        assert_eq!(
            print("%g %g %g", &[0.0001f64.to_bits(), 1e10f64.to_bits(), 100.0f64.to_bits()]),
            "0.0001 1e+10 100"
        );
        assert_eq!(print("%5s|%.2s|%p", &[1, 1, 4096]), " text|te|0x1000");
        assert_eq!(print("%f %5.1f", &[f64::NAN.to_bits(), f64::INFINITY.to_bits()]), "nan   inf");
    }

    #[test]
    fn zeros_stand_behind_the_sign_and_the_base() {
        assert_eq!(print("%08lX|%#010lx|%-#06lx|", &[255, 255, 255]), "000000FF|0x000000ff|0xff  |");
        assert_eq!(
            print("%06lF|%06f|%012a", &[0, f64::NAN.to_bits(), 1.5f64.to_bits()]),
            "0.000000|   nan|0x00001.8p+0"
        );
        assert_eq!(print("%08.3ld|%.0ld|%#lo|%#.3lo", &[5, 0, 0, 8]), "     005||0|010");
    }

    #[test]
    fn a_line_ends_where_a_devices_buffer_does() {
        let long = vec![b'x'; 64 << 10];
        let read = Cell::new(0);
        let pattern = "%s".repeat(8192);
        let value = |_, _| Ok::<u64, Infallible>(1);
        let line = format(pattern.as_bytes(), value, |_| {
            read.set(read.get() + 1);
            Ok(long.clone())
        });
        let (line, count) = line.unwrap();
        assert_eq!((line.len(), count, read.get()), (1 << 20, 16, 16), "no more is read than fits");
    }

    #[test]
    fn short_integers_are_narrowed() {
        assert_eq!(print("%hd", &[70_000]), "4464");
        assert_eq!(print("%hhd", &[0x1ff]), "-1");
        assert_eq!(print("%hhx", &[0x1ff]), "ff");
    }

    #[test]
    fn bytes_are_printed_as_they_are() {
        assert_eq!(print("%c|%p|%8p", &[0xe9, 0, 0]), "\u{e9}|(nil)|   (nil)");
    }

    #[test]
    fn the_alternate_form_of_a_float_keeps_its_point() {
        let arguments = [3f64, 3.0, 100_000.0, 1.999].map(f64::to_bits);
        assert_eq!(print("%#.0f|%#.0e|%#.6g|%.1a", &arguments), "3.|3.e+00|100000.|0x2.0p+0");
    }
}
