use proptest::prelude::{Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::{EvaluateError, Expression};

fn value(text: &str) -> Result<u64, EvaluateError> {
    let value_of = |symbol: &str| match symbol {
        "n" => Some(1000),
        "zero" => Some(0),
        "huge" => Some(u64::MAX),
        _ => None,
    };
    Expression::parse(text).unwrap().evaluate(&value_of)
}

#[test]
fn arithmetic_has_the_usual_precedence_and_groups_to_the_left() {
    assert_eq!(value("2 + 3 * 4"), Ok(14));
    assert_eq!(value("(2 + 3) * 4"), Ok(20));
    assert_eq!(value("20 - 5 - 3"), Ok(12));
    assert_eq!(value("100 / 7 / 2"), Ok(7));
    assert_eq!(value("n % 256"), Ok(232));
    assert_eq!(value(" ceil_div( n , 256 ) "), Ok(4));
    assert_eq!(value("min(n, 7) + max(n, 7)"), Ok(1007));
}

#[test]
fn the_error_of_an_expression_without_a_value_quotes_the_expression() {
    assert_eq!(value("huge + 1"), Err(EvaluateError::Overflow("huge + 1".into())));
    assert_eq!(value("huge * 2"), Err(EvaluateError::Overflow("huge * 2".into())));
    assert_eq!(value("zero - 1"), Err(EvaluateError::Negative("zero - 1".into())));
    assert_eq!(value("n / zero"), Err(EvaluateError::DivisionByZero("n / zero".into())));
    assert_eq!(value("n % zero"), Err(EvaluateError::DivisionByZero("n % zero".into())));
    assert_eq!(value("ceil_div(n, zero)"), Err(EvaluateError::DivisionByZero("ceil_div(n, zero)".into())));
    assert_eq!(value("n + who"), Err(EvaluateError::Unknown("who".into())));
    assert_eq!(value("ceil_div(huge, 2)"), Ok(1 << 63));
}

#[test]
fn an_invalid_expression_is_refused_with_its_position() {
    for (text, problem) in [
        ("", "expected a number, a name or a parenthesis at byte 0"),
        ("n +", "expected a number, a name or a parenthesis at byte 3"),
        ("n n", "expected an operator or the end at byte 2"),
        ("(n", "a closing parenthesis is missing at byte 2"),
        ("sqrt(n)", "unknown function; use ceil_div, min or max at byte 4"),
        ("min(n)", "the function takes two operands at byte 5"),
        ("99999999999999999999", "not a 64-bit integer at byte 20"),
        ("12n", "not a 64-bit integer at byte 3"),
        ("π", "expected a number, a name or a parenthesis at byte 0"),
    ] {
        let error = Expression::parse(text).unwrap_err().to_string();
        assert_eq!(error, format!("{text:?} is not an expression: {problem}"));
    }
    assert!(Expression::parse(&"(".repeat(200)).is_err());
    assert!(Expression::parse(&"n+".repeat(100_000)).is_err());
}

#[test]
fn symbols_are_listed_and_an_expression_of_one_symbol_is_recognized() {
    let expression = Expression::parse("ceil_div(n, tile) * m").unwrap();
    assert_eq!(expression.symbols(), ["n", "tile", "m"]);
    assert_eq!(expression.symbol(), None);
    assert_eq!(Expression::parse("(n)").unwrap().symbol(), Some("n"));
    assert_eq!(expression.to_string(), "ceil_div(n, tile) * m");
}

/// Returns a random expression as text, and its value computed without bounds. The value is `None` if a step does not
/// fit into 64 bits.
fn known() -> impl Strategy<Value = (String, Option<i128>)> {
    let leaf = prop_oneof![any::<u64>(), 0_u64..4].prop_map(|value| (value.to_string(), Some(i128::from(value))));
    leaf.prop_recursive(4, 24, 2, |inner| {
        (0..8_usize, inner.clone(), inner).prop_map(|(f, left, right)| apply(f, left, right))
    })
}

type Known = (String, Option<i128>);

fn apply(function: usize, (left_text, left): Known, (right_text, right): Known) -> Known {
    let text = match function {
        0..5 => format!("({left_text} {} {right_text})", ["+", "-", "*", "/", "%"][function]),
        _ => format!("{}({left_text}, {right_text})", ["ceil_div", "min", "max"][function - 5]),
    };
    let exact = |left: i128, right: i128| match function {
        0 => Some(left + right),
        1 => Some(left - right),
        2 => left.checked_mul(right),
        3 => left.checked_div(right),
        4 => left.checked_rem(right),
        5 => (right != 0).then(|| (left + right - 1) / right),
        6 => Some(left.min(right)),
        _ => Some(left.max(right)),
    };
    let value = left.zip(right).and_then(|(left, right)| exact(left, right));
    (text, value.filter(|value| u64::try_from(*value).is_ok()))
}

proptest! {
    #[test]
    fn evaluation_agrees_with_unbounded_arithmetic((text, value) in known()) {
        // Some expressions are too long to parse.
        if let Ok(expression) = Expression::parse(&text) {
            prop_assert_eq!(expression.evaluate(&|_| None).ok().map(i128::from), value);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z0-9_+*/%(), -]{0,80}", other in ".{0,40}") {
        for text in [text, other] {
            if let Ok(expression) = Expression::parse(&text) {
                let _ = expression.evaluate(&|symbol| Some(symbol.len() as u64));
            }
        }
    }
}
