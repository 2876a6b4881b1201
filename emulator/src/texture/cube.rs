//! Cube maps: from a direction to a face and coordinates on it (CUDA C++ Programming Guide, "Cubemap Textures").

/// Returns the face that a direction meets, and the coordinates there, from 0 to 1. Among equal components the first
/// decides.
pub fn face(direction: [f64; 3]) -> (u64, [f64; 2]) {
    let face = face_of(direction);
    let [major, s, t] = on_face(face, direction);
    (face, [s, t].map(|coordinate| (coordinate / major + 1.0) / 2.0))
}

/// Returns how the coordinates on a direction's face change: their derivative along a step of the direction.
pub fn step(direction: [f64; 3], step: [f64; 3]) -> [f64; 2] {
    let face = face_of(direction);
    let [major, s, t] = on_face(face, direction);
    let [major_step, s_step, t_step] = on_face(face, step);
    [(s, s_step), (t, t_step)].map(|(at, along)| (along * major - at * major_step) / (2.0 * major * major))
}

fn face_of([x, y, z]: [f64; 3]) -> u64 {
    let (face, major) = if x.abs() >= y.abs() && x.abs() >= z.abs() {
        (0, x)
    } else if y.abs() >= z.abs() {
        (2, y)
    } else {
        (4, z)
    };
    if major >= 0.0 { face } else { face + 1 }
}

/// Expresses a vector in the axes of a face: away from the centre, and along both coordinates.
fn on_face(face: u64, [x, y, z]: [f64; 3]) -> [f64; 3] {
    match face {
        0 => [x, -z, -y],
        1 => [-x, z, -y],
        2 => [y, x, z],
        3 => [-y, x, -z],
        4 => [z, x, -y],
        _ => [-z, -x, -y],
    }
}
