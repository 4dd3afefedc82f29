//! Products of matrices in one thread.
#![allow(unsafe_code)] // The library takes pointers and strides.

use gemm::{Parallelism, gemm};
use ndarray::{ArrayView2, ArrayViewMut2};

/// Writes `a b` into `c`.
///
/// # Panics
/// If the sizes do not fit.
pub fn product(a: &ArrayView2<'_, f32>, b: &ArrayView2<'_, f32>, c: &mut ArrayViewMut2<'_, f32>) {
    multiply(a, b, c, false);
}

/// Adds `a b` to `c`.
///
/// # Panics
/// If the sizes do not fit.
pub fn add_product(a: &ArrayView2<'_, f32>, b: &ArrayView2<'_, f32>, c: &mut ArrayViewMut2<'_, f32>) {
    multiply(a, b, c, true);
}

fn multiply(
    a: &ArrayView2<'_, f32>,
    b: &ArrayView2<'_, f32>,
    c: &mut ArrayViewMut2<'_, f32>,
    is_added: bool,
) {
    let (rows, depth) = a.dim();
    let columns = b.ncols();
    assert_eq!((b.nrows(), c.dim()), (depth, (rows, columns)), "sizes of a product");
    let (of_a, of_b) = (a.strides(), b.strides());
    let of_c = [c.strides()[0], c.strides()[1]];
    // SAFETY: pointers and strides are those of views of these sizes, and `c` overlaps with nothing.
    unsafe {
        gemm(
            rows,
            columns,
            depth,
            c.as_mut_ptr(),
            of_c[1],
            of_c[0],
            is_added,
            a.as_ptr(),
            of_a[1],
            of_a[0],
            b.as_ptr(),
            of_b[1],
            of_b[0],
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, s};

    use super::{add_product, product};

    #[test]
    fn any_strides_and_sizes_give_the_sums() {
        for (rows, depth, columns) in [(1, 1, 1), (5, 7, 3), (64, 33, 17), (3, 70, 1), (0, 4, 2), (2, 0, 3)] {
            let a = Array2::from_shape_fn((depth, rows + 1), |(i, j)| ((i * 7 + j * 3) % 11) as f32 - 5.0);
            let b = Array2::from_shape_fn((columns, depth), |(i, j)| ((i * 5 + j * 2) % 13) as f32 - 6.0);
            let (a, b) = (a.slice(s![.., 1..]).reversed_axes(), b.t());
            let expected = Array2::from_shape_fn((rows, columns), |(i, j)| {
                (0..depth).map(|k| a[[i, k]] * b[[k, j]]).sum::<f32>()
            });
            let mut c = Array2::from_elem((rows, columns), f32::NAN);
            product(&a, &b, &mut c.view_mut());
            assert_eq!(c, expected);
            add_product(&a, &b, &mut c.view_mut());
            assert_eq!(c, &expected * 2.0);
        }
    }

    #[test]
    #[should_panic(expected = "sizes of a product")]
    fn sizes_that_do_not_fit_are_refused() {
        let a = Array2::zeros((2, 3));
        product(&a.view(), &a.view(), &mut Array2::zeros((2, 3)).view_mut());
    }
}
