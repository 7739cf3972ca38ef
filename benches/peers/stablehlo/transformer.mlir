module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<256x4x64xf32>, %arg1: tensor<256x4x64xf32>, %arg2: tensor<256x4x64xf32>, %arg3: tensor<4x64x256xf32>, %arg4: tensor<256x1024xf32>, %arg5: tensor<1024x256xf32>, %arg6: tensor<256x4x64xf32>, %arg7: tensor<256x4x64xf32>, %arg8: tensor<256x4x64xf32>, %arg9: tensor<4x64x256xf32>, %arg10: tensor<256x1024xf32>, %arg11: tensor<1024x256xf32>, %arg12: tensor<4x128x256xf32>) -> (tensor<256x4x64xf32> {jax.result_info = "result[0][0]"}, tensor<256x4x64xf32> {jax.result_info = "result[0][1]"}, tensor<256x4x64xf32> {jax.result_info = "result[0][2]"}, tensor<4x64x256xf32> {jax.result_info = "result[0][3]"}, tensor<256x1024xf32> {jax.result_info = "result[0][4]"}, tensor<1024x256xf32> {jax.result_info = "result[0][5]"}, tensor<256x4x64xf32> {jax.result_info = "result[1][0]"}, tensor<256x4x64xf32> {jax.result_info = "result[1][1]"}, tensor<256x4x64xf32> {jax.result_info = "result[1][2]"}, tensor<4x64x256xf32> {jax.result_info = "result[1][3]"}, tensor<256x1024xf32> {jax.result_info = "result[1][4]"}, tensor<1024x256xf32> {jax.result_info = "result[1][5]"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg12 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_0 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<4x128x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %5 = stablehlo.subtract %arg12, %4 : tensor<4x128x256xf32>
    %6 = stablehlo.multiply %5, %5 : tensor<4x128x256xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_2 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %10 = stablehlo.divide %8, %9 : tensor<4x128x1xf32>
    %cst_3 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %12 = stablehlo.add %10, %11 : tensor<4x128x1xf32>
    %13 = stablehlo.rsqrt %12 : tensor<4x128x1xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %15 = stablehlo.multiply %5, %14 : tensor<4x128x256xf32>
    %16 = stablehlo.dot_general %15, %arg0, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<256x4x64xf32>) -> tensor<4x128x4x64xf32>
    %17 = stablehlo.dot_general %15, %arg1, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<256x4x64xf32>) -> tensor<4x128x4x64xf32>
    %18 = stablehlo.dot_general %15, %arg2, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<256x4x64xf32>) -> tensor<4x128x4x64xf32>
    %19 = stablehlo.dot_general %16, %17, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x128x4x64xf32>) -> tensor<4x4x128x128xf32>
    %cst_4 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<4x4x128x128xf32>
    %21 = stablehlo.divide %19, %20 : tensor<4x4x128x128xf32>
    %cst_5 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %22 = stablehlo.reduce(%21 init: %cst_5) applies stablehlo.maximum across dimensions = [3] : (tensor<4x4x128x128xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %cst_6 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<4x4x128xf32>
    %24 = stablehlo.maximum %23, %22 : tensor<4x4x128xf32>
    %25 = stablehlo.broadcast_in_dim %24, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x1xf32>
    %26 = stablehlo.broadcast_in_dim %25, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x128xf32>
    %27 = stablehlo.subtract %21, %26 : tensor<4x4x128x128xf32>
    %28 = stablehlo.exponential %27 : tensor<4x4x128x128xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %29 = stablehlo.reduce(%28 init: %cst_7) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x128xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %30 = stablehlo.broadcast_in_dim %29, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x1xf32>
    %31 = stablehlo.broadcast_in_dim %30, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x128xf32>
    %32 = stablehlo.divide %28, %31 : tensor<4x4x128x128xf32>
    %33 = stablehlo.multiply %30, %30 : tensor<4x4x128x1xf32>
    %cst_8 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %34 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<4x4x128x1xf32>
    %35 = stablehlo.divide %34, %33 : tensor<4x4x128x1xf32>
    %36 = stablehlo.dot_general %18, %32, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x4x128x128xf32>) -> tensor<4x4x64x128xf32>
    %37 = stablehlo.transpose %36, dims = [0, 3, 1, 2] : (tensor<4x4x64x128xf32>) -> tensor<4x128x4x64xf32>
    %38 = stablehlo.dot_general %37, %arg3, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x64x256xf32>) -> tensor<4x128x256xf32>
    %39 = stablehlo.add %arg12, %38 : tensor<4x128x256xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %40 = stablehlo.reduce(%39 init: %cst_9) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %41 = stablehlo.broadcast_in_dim %40, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_10 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %42 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %43 = stablehlo.divide %41, %42 : tensor<4x128x1xf32>
    %44 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %45 = stablehlo.subtract %39, %44 : tensor<4x128x256xf32>
    %46 = stablehlo.multiply %45, %45 : tensor<4x128x256xf32>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %47 = stablehlo.reduce(%46 init: %cst_11) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %48 = stablehlo.broadcast_in_dim %47, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_12 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %49 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %50 = stablehlo.divide %48, %49 : tensor<4x128x1xf32>
    %cst_13 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %51 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %52 = stablehlo.add %50, %51 : tensor<4x128x1xf32>
    %53 = stablehlo.rsqrt %52 : tensor<4x128x1xf32>
    %54 = stablehlo.divide %53, %52 : tensor<4x128x1xf32>
    %cst_14 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %55 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %56 = stablehlo.multiply %55, %54 : tensor<4x128x1xf32>
    %57 = stablehlo.broadcast_in_dim %53, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %58 = stablehlo.multiply %45, %57 : tensor<4x128x256xf32>
    %59 = stablehlo.dot_general %58, %arg4, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<256x1024xf32>) -> tensor<4x128x1024xf32>
    %cst_15 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %60 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %61 = stablehlo.maximum %59, %60 : tensor<4x128x1024xf32>
    %62 = stablehlo.compare EQ, %59, %61, FLOAT : (tensor<4x128x1024xf32>, tensor<4x128x1024xf32>) -> tensor<4x128x1024xi1>
    %cst_16 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %63 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %64 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %65 = stablehlo.select %62, %63, %64 : tensor<4x128x1024xi1>, tensor<4x128x1024xf32>
    %cst_18 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %66 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %67 = stablehlo.compare EQ, %66, %61, FLOAT : (tensor<4x128x1024xf32>, tensor<4x128x1024xf32>) -> tensor<4x128x1024xi1>
    %cst_19 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %68 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %cst_20 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %69 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %70 = stablehlo.select %67, %68, %69 : tensor<4x128x1024xi1>, tensor<4x128x1024xf32>
    %71 = stablehlo.divide %65, %70 : tensor<4x128x1024xf32>
    %72 = stablehlo.dot_general %61, %arg5, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xf32>, tensor<1024x256xf32>) -> tensor<4x128x256xf32>
    %73 = stablehlo.add %39, %72 : tensor<4x128x256xf32>
    %cst_21 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %74 = stablehlo.reduce(%73 init: %cst_21) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %75 = stablehlo.broadcast_in_dim %74, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_22 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %76 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %77 = stablehlo.divide %75, %76 : tensor<4x128x1xf32>
    %78 = stablehlo.broadcast_in_dim %77, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %79 = stablehlo.subtract %73, %78 : tensor<4x128x256xf32>
    %80 = stablehlo.multiply %79, %79 : tensor<4x128x256xf32>
    %cst_23 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %81 = stablehlo.reduce(%80 init: %cst_23) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %82 = stablehlo.broadcast_in_dim %81, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_24 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %83 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %84 = stablehlo.divide %82, %83 : tensor<4x128x1xf32>
    %cst_25 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %85 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %86 = stablehlo.add %84, %85 : tensor<4x128x1xf32>
    %87 = stablehlo.rsqrt %86 : tensor<4x128x1xf32>
    %88 = stablehlo.divide %87, %86 : tensor<4x128x1xf32>
    %cst_26 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %89 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %90 = stablehlo.multiply %89, %88 : tensor<4x128x1xf32>
    %91 = stablehlo.broadcast_in_dim %87, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %92 = stablehlo.multiply %79, %91 : tensor<4x128x256xf32>
    %93 = stablehlo.dot_general %92, %arg6, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<256x4x64xf32>) -> tensor<4x128x4x64xf32>
    %94 = stablehlo.dot_general %92, %arg7, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<256x4x64xf32>) -> tensor<4x128x4x64xf32>
    %95 = stablehlo.dot_general %92, %arg8, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<256x4x64xf32>) -> tensor<4x128x4x64xf32>
    %96 = stablehlo.dot_general %93, %94, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x128x4x64xf32>) -> tensor<4x4x128x128xf32>
    %cst_27 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %97 = stablehlo.broadcast_in_dim %cst_27, dims = [] : (tensor<f32>) -> tensor<4x4x128x128xf32>
    %98 = stablehlo.divide %96, %97 : tensor<4x4x128x128xf32>
    %cst_28 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %99 = stablehlo.reduce(%98 init: %cst_28) applies stablehlo.maximum across dimensions = [3] : (tensor<4x4x128x128xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %cst_29 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %100 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<f32>) -> tensor<4x4x128xf32>
    %101 = stablehlo.maximum %100, %99 : tensor<4x4x128xf32>
    %102 = stablehlo.broadcast_in_dim %101, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x1xf32>
    %103 = stablehlo.broadcast_in_dim %102, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x128xf32>
    %104 = stablehlo.subtract %98, %103 : tensor<4x4x128x128xf32>
    %105 = stablehlo.exponential %104 : tensor<4x4x128x128xf32>
    %cst_30 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %106 = stablehlo.reduce(%105 init: %cst_30) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x128xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %107 = stablehlo.broadcast_in_dim %106, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x1xf32>
    %108 = stablehlo.broadcast_in_dim %107, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x128xf32>
    %109 = stablehlo.divide %105, %108 : tensor<4x4x128x128xf32>
    %110 = stablehlo.multiply %107, %107 : tensor<4x4x128x1xf32>
    %cst_31 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %111 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<f32>) -> tensor<4x4x128x1xf32>
    %112 = stablehlo.divide %111, %110 : tensor<4x4x128x1xf32>
    %113 = stablehlo.dot_general %95, %109, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x4x128x128xf32>) -> tensor<4x4x64x128xf32>
    %114 = stablehlo.transpose %113, dims = [0, 3, 1, 2] : (tensor<4x4x64x128xf32>) -> tensor<4x128x4x64xf32>
    %115 = stablehlo.dot_general %114, %arg9, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x64x256xf32>) -> tensor<4x128x256xf32>
    %116 = stablehlo.add %73, %115 : tensor<4x128x256xf32>
    %cst_32 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %117 = stablehlo.reduce(%116 init: %cst_32) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %118 = stablehlo.broadcast_in_dim %117, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_33 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %119 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %120 = stablehlo.divide %118, %119 : tensor<4x128x1xf32>
    %121 = stablehlo.broadcast_in_dim %120, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %122 = stablehlo.subtract %116, %121 : tensor<4x128x256xf32>
    %123 = stablehlo.multiply %122, %122 : tensor<4x128x256xf32>
    %cst_34 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %124 = stablehlo.reduce(%123 init: %cst_34) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %125 = stablehlo.broadcast_in_dim %124, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_35 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %126 = stablehlo.broadcast_in_dim %cst_35, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %127 = stablehlo.divide %125, %126 : tensor<4x128x1xf32>
    %cst_36 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %128 = stablehlo.broadcast_in_dim %cst_36, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %129 = stablehlo.add %127, %128 : tensor<4x128x1xf32>
    %130 = stablehlo.rsqrt %129 : tensor<4x128x1xf32>
    %131 = stablehlo.divide %130, %129 : tensor<4x128x1xf32>
    %cst_37 = stablehlo.constant dense<-5.000000e-01> : tensor<f32>
    %132 = stablehlo.broadcast_in_dim %cst_37, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %133 = stablehlo.multiply %132, %131 : tensor<4x128x1xf32>
    %134 = stablehlo.broadcast_in_dim %130, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %135 = stablehlo.multiply %122, %134 : tensor<4x128x256xf32>
    %136 = stablehlo.dot_general %135, %arg10, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<256x1024xf32>) -> tensor<4x128x1024xf32>
    %cst_38 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %137 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %138 = stablehlo.maximum %136, %137 : tensor<4x128x1024xf32>
    %139 = stablehlo.compare EQ, %136, %138, FLOAT : (tensor<4x128x1024xf32>, tensor<4x128x1024xf32>) -> tensor<4x128x1024xi1>
    %cst_39 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %140 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %cst_40 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %141 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %142 = stablehlo.select %139, %140, %141 : tensor<4x128x1024xi1>, tensor<4x128x1024xf32>
    %cst_41 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %143 = stablehlo.broadcast_in_dim %cst_41, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %144 = stablehlo.compare EQ, %143, %138, FLOAT : (tensor<4x128x1024xf32>, tensor<4x128x1024xf32>) -> tensor<4x128x1024xi1>
    %cst_42 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %145 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %cst_43 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %146 = stablehlo.broadcast_in_dim %cst_43, dims = [] : (tensor<f32>) -> tensor<4x128x1024xf32>
    %147 = stablehlo.select %144, %145, %146 : tensor<4x128x1024xi1>, tensor<4x128x1024xf32>
    %148 = stablehlo.divide %142, %147 : tensor<4x128x1024xf32>
    %149 = stablehlo.dot_general %138, %arg11, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xf32>, tensor<1024x256xf32>) -> tensor<4x128x256xf32>
    %150 = stablehlo.add %116, %149 : tensor<4x128x256xf32>
    %151 = call @_roll_static(%arg12) : (tensor<4x128x256xf32>) -> tensor<4x128x256xf32>
    %152 = stablehlo.subtract %150, %151 : tensor<4x128x256xf32>
    %cst_44 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %153 = stablehlo.broadcast_in_dim %cst_44, dims = [] : (tensor<f32>) -> tensor<4x128x256xf32>
    %154 = stablehlo.multiply %153, %152 : tensor<4x128x256xf32>
    %cst_45 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_46 = stablehlo.constant dense<1.310720e+05> : tensor<f32>
    %155 = stablehlo.divide %cst_45, %cst_46 : tensor<f32>
    %156 = stablehlo.broadcast_in_dim %155, dims = [] : (tensor<f32>) -> tensor<4x128x256xf32>
    %157 = stablehlo.multiply %156, %154 : tensor<4x128x256xf32>
    %158 = stablehlo.dot_general %157, %138, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<4x128x1024xf32>) -> tensor<256x1024xf32>
    %159 = stablehlo.transpose %158, dims = [1, 0] : (tensor<256x1024xf32>) -> tensor<1024x256xf32>
    %160 = stablehlo.dot_general %157, %arg11, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<1024x256xf32>) -> tensor<4x128x1024xf32>
    %161 = stablehlo.multiply %160, %148 : tensor<4x128x1024xf32>
    %162 = stablehlo.dot_general %161, %135, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xf32>, tensor<4x128x256xf32>) -> tensor<1024x256xf32>
    %163 = stablehlo.transpose %162, dims = [1, 0] : (tensor<1024x256xf32>) -> tensor<256x1024xf32>
    %164 = stablehlo.dot_general %161, %arg10, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xf32>, tensor<256x1024xf32>) -> tensor<4x128x256xf32>
    %165 = stablehlo.multiply %122, %164 : tensor<4x128x256xf32>
    %cst_47 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %166 = stablehlo.reduce(%165 init: %cst_47) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %167 = stablehlo.reshape %166 : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %168 = stablehlo.broadcast_in_dim %130, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %169 = stablehlo.multiply %164, %168 : tensor<4x128x256xf32>
    %170 = stablehlo.multiply %167, %133 : tensor<4x128x1xf32>
    %cst_48 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %171 = stablehlo.broadcast_in_dim %cst_48, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %172 = stablehlo.divide %170, %171 : tensor<4x128x1xf32>
    %cst_49 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %173 = stablehlo.reduce(%172 init: %cst_49) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %174 = stablehlo.broadcast_in_dim %173, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %175 = stablehlo.multiply %122, %174 : tensor<4x128x256xf32>
    %176 = stablehlo.add %169, %175 : tensor<4x128x256xf32>
    %177 = stablehlo.multiply %174, %122 : tensor<4x128x256xf32>
    %178 = stablehlo.add %176, %177 : tensor<4x128x256xf32>
    %179 = stablehlo.negate %178 : tensor<4x128x256xf32>
    %cst_50 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %180 = stablehlo.reduce(%179 init: %cst_50) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %181 = stablehlo.reshape %180 : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %182 = stablehlo.add %157, %178 : tensor<4x128x256xf32>
    %cst_51 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %183 = stablehlo.broadcast_in_dim %cst_51, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %184 = stablehlo.divide %181, %183 : tensor<4x128x1xf32>
    %cst_52 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %185 = stablehlo.reduce(%184 init: %cst_52) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %186 = stablehlo.broadcast_in_dim %185, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %187 = stablehlo.add %182, %186 : tensor<4x128x256xf32>
    %188 = stablehlo.dot_general %187, %114, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<4x128x4x64xf32>) -> tensor<256x4x64xf32>
    %189 = stablehlo.transpose %188, dims = [1, 2, 0] : (tensor<256x4x64xf32>) -> tensor<4x64x256xf32>
    %190 = stablehlo.dot_general %187, %arg9, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<4x64x256xf32>) -> tensor<4x128x4x64xf32>
    %191 = stablehlo.transpose %190, dims = [0, 2, 3, 1] : (tensor<4x128x4x64xf32>) -> tensor<4x4x64x128xf32>
    %192 = stablehlo.dot_general %191, %95, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x4x64x128xf32>, tensor<4x128x4x64xf32>) -> tensor<4x4x128x128xf32>
    %193 = stablehlo.dot_general %191, %109, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4x4x64x128xf32>, tensor<4x4x128x128xf32>) -> tensor<4x4x64x128xf32>
    %194 = stablehlo.transpose %193, dims = [0, 3, 1, 2] : (tensor<4x4x64x128xf32>) -> tensor<4x128x4x64xf32>
    %195 = stablehlo.broadcast_in_dim %112, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x128xf32>
    %196 = stablehlo.multiply %192, %195 : tensor<4x4x128x128xf32>
    %197 = stablehlo.multiply %196, %105 : tensor<4x4x128x128xf32>
    %cst_53 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %198 = stablehlo.reduce(%197 init: %cst_53) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x128xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %199 = stablehlo.reshape %198 : (tensor<4x4x128xf32>) -> tensor<4x4x128x1xf32>
    %200 = stablehlo.negate %199 : tensor<4x4x128x1xf32>
    %201 = stablehlo.broadcast_in_dim %107, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x128xf32>
    %202 = stablehlo.divide %192, %201 : tensor<4x4x128x128xf32>
    %cst_54 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %203 = stablehlo.reduce(%200 init: %cst_54) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x1xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %204 = stablehlo.broadcast_in_dim %203, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x128xf32>
    %205 = stablehlo.add %202, %204 : tensor<4x4x128x128xf32>
    %206 = stablehlo.multiply %205, %105 : tensor<4x4x128x128xf32>
    %cst_55 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %207 = stablehlo.broadcast_in_dim %cst_55, dims = [] : (tensor<f32>) -> tensor<4x4x128x128xf32>
    %208 = stablehlo.divide %206, %207 : tensor<4x4x128x128xf32>
    %209 = stablehlo.dot_general %208, %93, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x4x128x128xf32>, tensor<4x128x4x64xf32>) -> tensor<4x4x128x64xf32>
    %210 = stablehlo.transpose %209, dims = [0, 2, 1, 3] : (tensor<4x4x128x64xf32>) -> tensor<4x128x4x64xf32>
    %211 = stablehlo.dot_general %208, %94, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x4x128x128xf32>, tensor<4x128x4x64xf32>) -> tensor<4x4x128x64xf32>
    %212 = stablehlo.transpose %211, dims = [0, 2, 1, 3] : (tensor<4x4x128x64xf32>) -> tensor<4x128x4x64xf32>
    %213 = stablehlo.dot_general %194, %92, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x128x256xf32>) -> tensor<4x64x256xf32>
    %214 = stablehlo.transpose %213, dims = [2, 0, 1] : (tensor<4x64x256xf32>) -> tensor<256x4x64xf32>
    %215 = stablehlo.dot_general %194, %arg8, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<256x4x64xf32>) -> tensor<4x128x256xf32>
    %216 = stablehlo.dot_general %210, %92, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x128x256xf32>) -> tensor<4x64x256xf32>
    %217 = stablehlo.transpose %216, dims = [2, 0, 1] : (tensor<4x64x256xf32>) -> tensor<256x4x64xf32>
    %218 = stablehlo.dot_general %210, %arg7, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<256x4x64xf32>) -> tensor<4x128x256xf32>
    %219 = stablehlo.add %215, %218 : tensor<4x128x256xf32>
    %220 = stablehlo.dot_general %212, %92, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x128x256xf32>) -> tensor<4x64x256xf32>
    %221 = stablehlo.transpose %220, dims = [2, 0, 1] : (tensor<4x64x256xf32>) -> tensor<256x4x64xf32>
    %222 = stablehlo.dot_general %212, %arg6, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<256x4x64xf32>) -> tensor<4x128x256xf32>
    %223 = stablehlo.add %219, %222 : tensor<4x128x256xf32>
    %224 = stablehlo.multiply %79, %223 : tensor<4x128x256xf32>
    %cst_56 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %225 = stablehlo.reduce(%224 init: %cst_56) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %226 = stablehlo.reshape %225 : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %227 = stablehlo.broadcast_in_dim %87, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %228 = stablehlo.multiply %223, %227 : tensor<4x128x256xf32>
    %229 = stablehlo.multiply %226, %90 : tensor<4x128x1xf32>
    %cst_57 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %230 = stablehlo.broadcast_in_dim %cst_57, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %231 = stablehlo.divide %229, %230 : tensor<4x128x1xf32>
    %cst_58 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %232 = stablehlo.reduce(%231 init: %cst_58) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %233 = stablehlo.broadcast_in_dim %232, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %234 = stablehlo.multiply %79, %233 : tensor<4x128x256xf32>
    %235 = stablehlo.add %228, %234 : tensor<4x128x256xf32>
    %236 = stablehlo.multiply %233, %79 : tensor<4x128x256xf32>
    %237 = stablehlo.add %235, %236 : tensor<4x128x256xf32>
    %238 = stablehlo.negate %237 : tensor<4x128x256xf32>
    %cst_59 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %239 = stablehlo.reduce(%238 init: %cst_59) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %240 = stablehlo.reshape %239 : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %241 = stablehlo.add %187, %237 : tensor<4x128x256xf32>
    %cst_60 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %242 = stablehlo.broadcast_in_dim %cst_60, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %243 = stablehlo.divide %240, %242 : tensor<4x128x1xf32>
    %cst_61 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %244 = stablehlo.reduce(%243 init: %cst_61) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %245 = stablehlo.broadcast_in_dim %244, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %246 = stablehlo.add %241, %245 : tensor<4x128x256xf32>
    %247 = stablehlo.dot_general %246, %61, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<4x128x1024xf32>) -> tensor<256x1024xf32>
    %248 = stablehlo.transpose %247, dims = [1, 0] : (tensor<256x1024xf32>) -> tensor<1024x256xf32>
    %249 = stablehlo.dot_general %246, %arg5, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<1024x256xf32>) -> tensor<4x128x1024xf32>
    %250 = stablehlo.multiply %249, %71 : tensor<4x128x1024xf32>
    %251 = stablehlo.dot_general %250, %58, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xf32>, tensor<4x128x256xf32>) -> tensor<1024x256xf32>
    %252 = stablehlo.transpose %251, dims = [1, 0] : (tensor<1024x256xf32>) -> tensor<256x1024xf32>
    %253 = stablehlo.dot_general %250, %arg4, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xf32>, tensor<256x1024xf32>) -> tensor<4x128x256xf32>
    %254 = stablehlo.multiply %45, %253 : tensor<4x128x256xf32>
    %cst_62 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %255 = stablehlo.reduce(%254 init: %cst_62) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %256 = stablehlo.reshape %255 : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %257 = stablehlo.broadcast_in_dim %53, dims = [0, 1, 2] : (tensor<4x128x1xf32>) -> tensor<4x128x256xf32>
    %258 = stablehlo.multiply %253, %257 : tensor<4x128x256xf32>
    %259 = stablehlo.multiply %256, %56 : tensor<4x128x1xf32>
    %cst_63 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %260 = stablehlo.broadcast_in_dim %cst_63, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %261 = stablehlo.divide %259, %260 : tensor<4x128x1xf32>
    %cst_64 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %262 = stablehlo.reduce(%261 init: %cst_64) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %263 = stablehlo.broadcast_in_dim %262, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %264 = stablehlo.multiply %45, %263 : tensor<4x128x256xf32>
    %265 = stablehlo.add %258, %264 : tensor<4x128x256xf32>
    %266 = stablehlo.multiply %263, %45 : tensor<4x128x256xf32>
    %267 = stablehlo.add %265, %266 : tensor<4x128x256xf32>
    %268 = stablehlo.negate %267 : tensor<4x128x256xf32>
    %cst_65 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %269 = stablehlo.reduce(%268 init: %cst_65) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %270 = stablehlo.reshape %269 : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %271 = stablehlo.add %246, %267 : tensor<4x128x256xf32>
    %cst_66 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %272 = stablehlo.broadcast_in_dim %cst_66, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %273 = stablehlo.divide %270, %272 : tensor<4x128x1xf32>
    %cst_67 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %274 = stablehlo.reduce(%273 init: %cst_67) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %275 = stablehlo.broadcast_in_dim %274, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %276 = stablehlo.add %271, %275 : tensor<4x128x256xf32>
    %277 = stablehlo.dot_general %276, %37, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<4x128x4x64xf32>) -> tensor<256x4x64xf32>
    %278 = stablehlo.transpose %277, dims = [1, 2, 0] : (tensor<256x4x64xf32>) -> tensor<4x64x256xf32>
    %279 = stablehlo.dot_general %276, %arg3, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xf32>, tensor<4x64x256xf32>) -> tensor<4x128x4x64xf32>
    %280 = stablehlo.transpose %279, dims = [0, 2, 3, 1] : (tensor<4x128x4x64xf32>) -> tensor<4x4x64x128xf32>
    %281 = stablehlo.dot_general %280, %18, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x4x64x128xf32>, tensor<4x128x4x64xf32>) -> tensor<4x4x128x128xf32>
    %282 = stablehlo.dot_general %280, %32, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4x4x64x128xf32>, tensor<4x4x128x128xf32>) -> tensor<4x4x64x128xf32>
    %283 = stablehlo.transpose %282, dims = [0, 3, 1, 2] : (tensor<4x4x64x128xf32>) -> tensor<4x128x4x64xf32>
    %284 = stablehlo.broadcast_in_dim %35, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x128xf32>
    %285 = stablehlo.multiply %281, %284 : tensor<4x4x128x128xf32>
    %286 = stablehlo.multiply %285, %28 : tensor<4x4x128x128xf32>
    %cst_68 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %287 = stablehlo.reduce(%286 init: %cst_68) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x128xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %288 = stablehlo.reshape %287 : (tensor<4x4x128xf32>) -> tensor<4x4x128x1xf32>
    %289 = stablehlo.negate %288 : tensor<4x4x128x1xf32>
    %290 = stablehlo.broadcast_in_dim %30, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x128xf32>
    %291 = stablehlo.divide %281, %290 : tensor<4x4x128x128xf32>
    %cst_69 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %292 = stablehlo.reduce(%289 init: %cst_69) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x1xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %293 = stablehlo.broadcast_in_dim %292, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x128xf32>
    %294 = stablehlo.add %291, %293 : tensor<4x4x128x128xf32>
    %295 = stablehlo.multiply %294, %28 : tensor<4x4x128x128xf32>
    %cst_70 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %296 = stablehlo.broadcast_in_dim %cst_70, dims = [] : (tensor<f32>) -> tensor<4x4x128x128xf32>
    %297 = stablehlo.divide %295, %296 : tensor<4x4x128x128xf32>
    %298 = stablehlo.dot_general %297, %16, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x4x128x128xf32>, tensor<4x128x4x64xf32>) -> tensor<4x4x128x64xf32>
    %299 = stablehlo.transpose %298, dims = [0, 2, 1, 3] : (tensor<4x4x128x64xf32>) -> tensor<4x128x4x64xf32>
    %300 = stablehlo.dot_general %297, %17, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x4x128x128xf32>, tensor<4x128x4x64xf32>) -> tensor<4x4x128x64xf32>
    %301 = stablehlo.transpose %300, dims = [0, 2, 1, 3] : (tensor<4x4x128x64xf32>) -> tensor<4x128x4x64xf32>
    %302 = stablehlo.dot_general %283, %15, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x128x256xf32>) -> tensor<4x64x256xf32>
    %303 = stablehlo.transpose %302, dims = [2, 0, 1] : (tensor<4x64x256xf32>) -> tensor<256x4x64xf32>
    %304 = stablehlo.dot_general %299, %15, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x128x256xf32>) -> tensor<4x64x256xf32>
    %305 = stablehlo.transpose %304, dims = [2, 0, 1] : (tensor<4x64x256xf32>) -> tensor<256x4x64xf32>
    %306 = stablehlo.dot_general %301, %15, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xf32>, tensor<4x128x256xf32>) -> tensor<4x64x256xf32>
    %307 = stablehlo.transpose %306, dims = [2, 0, 1] : (tensor<4x64x256xf32>) -> tensor<256x4x64xf32>
    %cst_71 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %308 = stablehlo.broadcast_in_dim %cst_71, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %309 = stablehlo.multiply %308, %307 : tensor<256x4x64xf32>
    %310 = stablehlo.subtract %arg0, %309 : tensor<256x4x64xf32>
    %cst_72 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %311 = stablehlo.broadcast_in_dim %cst_72, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %312 = stablehlo.multiply %311, %305 : tensor<256x4x64xf32>
    %313 = stablehlo.subtract %arg1, %312 : tensor<256x4x64xf32>
    %cst_73 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %314 = stablehlo.broadcast_in_dim %cst_73, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %315 = stablehlo.multiply %314, %303 : tensor<256x4x64xf32>
    %316 = stablehlo.subtract %arg2, %315 : tensor<256x4x64xf32>
    %cst_74 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %317 = stablehlo.broadcast_in_dim %cst_74, dims = [] : (tensor<f32>) -> tensor<4x64x256xf32>
    %318 = stablehlo.multiply %317, %278 : tensor<4x64x256xf32>
    %319 = stablehlo.subtract %arg3, %318 : tensor<4x64x256xf32>
    %cst_75 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %320 = stablehlo.broadcast_in_dim %cst_75, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %321 = stablehlo.multiply %320, %252 : tensor<256x1024xf32>
    %322 = stablehlo.subtract %arg4, %321 : tensor<256x1024xf32>
    %cst_76 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %323 = stablehlo.broadcast_in_dim %cst_76, dims = [] : (tensor<f32>) -> tensor<1024x256xf32>
    %324 = stablehlo.multiply %323, %248 : tensor<1024x256xf32>
    %325 = stablehlo.subtract %arg5, %324 : tensor<1024x256xf32>
    %cst_77 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %326 = stablehlo.broadcast_in_dim %cst_77, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %327 = stablehlo.multiply %326, %221 : tensor<256x4x64xf32>
    %328 = stablehlo.subtract %arg6, %327 : tensor<256x4x64xf32>
    %cst_78 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %329 = stablehlo.broadcast_in_dim %cst_78, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %330 = stablehlo.multiply %329, %217 : tensor<256x4x64xf32>
    %331 = stablehlo.subtract %arg7, %330 : tensor<256x4x64xf32>
    %cst_79 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %332 = stablehlo.broadcast_in_dim %cst_79, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %333 = stablehlo.multiply %332, %214 : tensor<256x4x64xf32>
    %334 = stablehlo.subtract %arg8, %333 : tensor<256x4x64xf32>
    %cst_80 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %335 = stablehlo.broadcast_in_dim %cst_80, dims = [] : (tensor<f32>) -> tensor<4x64x256xf32>
    %336 = stablehlo.multiply %335, %189 : tensor<4x64x256xf32>
    %337 = stablehlo.subtract %arg9, %336 : tensor<4x64x256xf32>
    %cst_81 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %338 = stablehlo.broadcast_in_dim %cst_81, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %339 = stablehlo.multiply %338, %163 : tensor<256x1024xf32>
    %340 = stablehlo.subtract %arg10, %339 : tensor<256x1024xf32>
    %cst_82 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %341 = stablehlo.broadcast_in_dim %cst_82, dims = [] : (tensor<f32>) -> tensor<1024x256xf32>
    %342 = stablehlo.multiply %341, %159 : tensor<1024x256xf32>
    %343 = stablehlo.subtract %arg11, %342 : tensor<1024x256xf32>
    return %310, %313, %316, %319, %322, %325, %328, %331, %334, %337, %340, %343 : tensor<256x4x64xf32>, tensor<256x4x64xf32>, tensor<256x4x64xf32>, tensor<4x64x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x4x64xf32>, tensor<256x4x64xf32>, tensor<256x4x64xf32>, tensor<4x64x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>
  }
  func.func private @_roll_static(%arg0: tensor<4x128x256xf32>) -> tensor<4x128x256xf32> {
    %0 = stablehlo.slice %arg0 [0:4, 127:128, 0:256] : (tensor<4x128x256xf32>) -> tensor<4x1x256xf32>
    %1 = stablehlo.slice %arg0 [0:4, 0:127, 0:256] : (tensor<4x128x256xf32>) -> tensor<4x127x256xf32>
    %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<4x1x256xf32>, tensor<4x127x256xf32>) -> tensor<4x128x256xf32>
    return %2 : tensor<4x128x256xf32>
  }
}
