module @jit_step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<256x4x64xf32>, %arg1: tensor<256x4x64xf32>, %arg2: tensor<256x4x64xf32>, %arg3: tensor<4x64x256xf32>, %arg4: tensor<256x1024xf32>, %arg5: tensor<1024x256xf32>, %arg6: tensor<256x4x64xf32>, %arg7: tensor<256x4x64xf32>, %arg8: tensor<256x4x64xf32>, %arg9: tensor<4x64x256xf32>, %arg10: tensor<256x1024xf32>, %arg11: tensor<1024x256xf32>, %arg12: tensor<4x128x256xf32>) -> (tensor<256x4x64xf32> {jax.result_info = "result[0][0]"}, tensor<256x4x64xf32> {jax.result_info = "result[0][1]"}, tensor<256x4x64xf32> {jax.result_info = "result[0][2]"}, tensor<4x64x256xf32> {jax.result_info = "result[0][3]"}, tensor<256x1024xf32> {jax.result_info = "result[0][4]"}, tensor<1024x256xf32> {jax.result_info = "result[0][5]"}, tensor<256x4x64xf32> {jax.result_info = "result[1][0]"}, tensor<256x4x64xf32> {jax.result_info = "result[1][1]"}, tensor<256x4x64xf32> {jax.result_info = "result[1][2]"}, tensor<4x64x256xf32> {jax.result_info = "result[1][3]"}, tensor<256x1024xf32> {jax.result_info = "result[1][4]"}, tensor<1024x256xf32> {jax.result_info = "result[1][5]"}) {
    %0 = stablehlo.convert %arg12 : (tensor<4x128x256xf32>) -> tensor<4x128x256xbf16>
    %1 = stablehlo.convert %arg0 : (tensor<256x4x64xf32>) -> tensor<256x4x64xbf16>
    %2 = stablehlo.convert %arg1 : (tensor<256x4x64xf32>) -> tensor<256x4x64xbf16>
    %3 = stablehlo.convert %arg2 : (tensor<256x4x64xf32>) -> tensor<256x4x64xbf16>
    %4 = stablehlo.convert %arg3 : (tensor<4x64x256xf32>) -> tensor<4x64x256xbf16>
    %5 = stablehlo.convert %arg4 : (tensor<256x1024xf32>) -> tensor<256x1024xbf16>
    %6 = stablehlo.convert %arg5 : (tensor<1024x256xf32>) -> tensor<1024x256xbf16>
    %7 = stablehlo.convert %0 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.reduce(%7 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_0 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %11 = stablehlo.divide %9, %10 : tensor<4x128x1xf32>
    %12 = stablehlo.convert %11 : (tensor<4x128x1xf32>) -> tensor<4x128x1xbf16>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %14 = stablehlo.subtract %0, %13 : tensor<4x128x256xbf16>
    %15 = stablehlo.multiply %14, %14 : tensor<4x128x256xbf16>
    %16 = stablehlo.convert %15 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %17 = stablehlo.reduce(%16 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_2 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %20 = stablehlo.divide %18, %19 : tensor<4x128x1xf32>
    %21 = stablehlo.convert %20 : (tensor<4x128x1xf32>) -> tensor<4x128x1xbf16>
    %cst_3 = stablehlo.constant dense<1.001360e-05> : tensor<bf16>
    %22 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<bf16>) -> tensor<4x128x1xbf16>
    %23 = stablehlo.add %21, %22 : tensor<4x128x1xbf16>
    %24 = stablehlo.rsqrt %23 : tensor<4x128x1xbf16>
    %25 = stablehlo.broadcast_in_dim %24, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %26 = stablehlo.multiply %14, %25 : tensor<4x128x256xbf16>
    %27 = stablehlo.dot_general %26, %1, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x4x64xbf16>
    %28 = stablehlo.dot_general %26, %2, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x4x64xbf16>
    %29 = stablehlo.dot_general %26, %3, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x4x64xbf16>
    %30 = stablehlo.dot_general %27, %28, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x128x4x64xbf16>) -> tensor<4x4x128x128xbf16>
    %cst_4 = stablehlo.constant dense<8.000000e+00> : tensor<bf16>
    %31 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<bf16>) -> tensor<4x4x128x128xbf16>
    %32 = stablehlo.divide %30, %31 : tensor<4x4x128x128xbf16>
    %cst_5 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %33 = stablehlo.reduce(%32 init: %cst_5) applies stablehlo.maximum across dimensions = [3] : (tensor<4x4x128x128xbf16>, tensor<bf16>) -> tensor<4x4x128xbf16>
    %cst_6 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %34 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<bf16>) -> tensor<4x4x128xbf16>
    %35 = stablehlo.maximum %34, %33 : tensor<4x4x128xbf16>
    %36 = stablehlo.broadcast_in_dim %35, dims = [0, 1, 2] : (tensor<4x4x128xbf16>) -> tensor<4x4x128x1xbf16>
    %37 = stablehlo.broadcast_in_dim %36, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x128xbf16>
    %38 = stablehlo.subtract %32, %37 : tensor<4x4x128x128xbf16>
    %39 = stablehlo.exponential %38 : tensor<4x4x128x128xbf16>
    %40 = stablehlo.convert %39 : (tensor<4x4x128x128xbf16>) -> tensor<4x4x128x128xf32>
    %cst_7 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %41 = stablehlo.reduce(%40 init: %cst_7) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x128xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %42 = stablehlo.broadcast_in_dim %41, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x1xf32>
    %43 = stablehlo.convert %42 : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x1xbf16>
    %44 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x128xbf16>
    %45 = stablehlo.divide %39, %44 : tensor<4x4x128x128xbf16>
    %46 = stablehlo.multiply %43, %43 : tensor<4x4x128x1xbf16>
    %cst_8 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %47 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<bf16>) -> tensor<4x4x128x1xbf16>
    %48 = stablehlo.divide %47, %46 : tensor<4x4x128x1xbf16>
    %49 = stablehlo.dot_general %29, %45, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x4x128x128xbf16>) -> tensor<4x4x64x128xbf16>
    %50 = stablehlo.transpose %49, dims = [0, 3, 1, 2] : (tensor<4x4x64x128xbf16>) -> tensor<4x128x4x64xbf16>
    %51 = stablehlo.dot_general %50, %4, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x64x256xbf16>) -> tensor<4x128x256xbf16>
    %52 = stablehlo.add %0, %51 : tensor<4x128x256xbf16>
    %53 = stablehlo.convert %52 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %54 = stablehlo.reduce(%53 init: %cst_9) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %55 = stablehlo.broadcast_in_dim %54, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_10 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %56 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %57 = stablehlo.divide %55, %56 : tensor<4x128x1xf32>
    %58 = stablehlo.convert %57 : (tensor<4x128x1xf32>) -> tensor<4x128x1xbf16>
    %59 = stablehlo.broadcast_in_dim %58, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %60 = stablehlo.subtract %52, %59 : tensor<4x128x256xbf16>
    %61 = stablehlo.multiply %60, %60 : tensor<4x128x256xbf16>
    %62 = stablehlo.convert %61 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %cst_11 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %63 = stablehlo.reduce(%62 init: %cst_11) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %64 = stablehlo.broadcast_in_dim %63, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_12 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %65 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %66 = stablehlo.divide %64, %65 : tensor<4x128x1xf32>
    %67 = stablehlo.convert %66 : (tensor<4x128x1xf32>) -> tensor<4x128x1xbf16>
    %cst_13 = stablehlo.constant dense<1.001360e-05> : tensor<bf16>
    %68 = stablehlo.broadcast_in_dim %cst_13, dims = [] : (tensor<bf16>) -> tensor<4x128x1xbf16>
    %69 = stablehlo.add %67, %68 : tensor<4x128x1xbf16>
    %70 = stablehlo.rsqrt %69 : tensor<4x128x1xbf16>
    %71 = stablehlo.divide %70, %69 : tensor<4x128x1xbf16>
    %cst_14 = stablehlo.constant dense<-5.000000e-01> : tensor<bf16>
    %72 = stablehlo.broadcast_in_dim %cst_14, dims = [] : (tensor<bf16>) -> tensor<4x128x1xbf16>
    %73 = stablehlo.multiply %72, %71 : tensor<4x128x1xbf16>
    %74 = stablehlo.broadcast_in_dim %70, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %75 = stablehlo.multiply %60, %74 : tensor<4x128x256xbf16>
    %76 = stablehlo.dot_general %75, %5, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<256x1024xbf16>) -> tensor<4x128x1024xbf16>
    %cst_15 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %77 = stablehlo.broadcast_in_dim %cst_15, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %78 = stablehlo.maximum %76, %77 : tensor<4x128x1024xbf16>
    %79 = stablehlo.compare EQ, %76, %78, FLOAT : (tensor<4x128x1024xbf16>, tensor<4x128x1024xbf16>) -> tensor<4x128x1024xi1>
    %cst_16 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %80 = stablehlo.broadcast_in_dim %cst_16, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %cst_17 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %81 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %82 = stablehlo.select %79, %80, %81 : tensor<4x128x1024xi1>, tensor<4x128x1024xbf16>
    %cst_18 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %83 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %84 = stablehlo.compare EQ, %83, %78, FLOAT : (tensor<4x128x1024xbf16>, tensor<4x128x1024xbf16>) -> tensor<4x128x1024xi1>
    %cst_19 = stablehlo.constant dense<2.000000e+00> : tensor<bf16>
    %85 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %cst_20 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %86 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %87 = stablehlo.select %84, %85, %86 : tensor<4x128x1024xi1>, tensor<4x128x1024xbf16>
    %88 = stablehlo.divide %82, %87 : tensor<4x128x1024xbf16>
    %89 = stablehlo.dot_general %78, %6, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xbf16>, tensor<1024x256xbf16>) -> tensor<4x128x256xbf16>
    %90 = stablehlo.add %52, %89 : tensor<4x128x256xbf16>
    %91 = stablehlo.convert %arg6 : (tensor<256x4x64xf32>) -> tensor<256x4x64xbf16>
    %92 = stablehlo.convert %arg7 : (tensor<256x4x64xf32>) -> tensor<256x4x64xbf16>
    %93 = stablehlo.convert %arg8 : (tensor<256x4x64xf32>) -> tensor<256x4x64xbf16>
    %94 = stablehlo.convert %arg9 : (tensor<4x64x256xf32>) -> tensor<4x64x256xbf16>
    %95 = stablehlo.convert %arg10 : (tensor<256x1024xf32>) -> tensor<256x1024xbf16>
    %96 = stablehlo.convert %arg11 : (tensor<1024x256xf32>) -> tensor<1024x256xbf16>
    %97 = stablehlo.convert %90 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %cst_21 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %98 = stablehlo.reduce(%97 init: %cst_21) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %99 = stablehlo.broadcast_in_dim %98, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_22 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %100 = stablehlo.broadcast_in_dim %cst_22, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %101 = stablehlo.divide %99, %100 : tensor<4x128x1xf32>
    %102 = stablehlo.convert %101 : (tensor<4x128x1xf32>) -> tensor<4x128x1xbf16>
    %103 = stablehlo.broadcast_in_dim %102, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %104 = stablehlo.subtract %90, %103 : tensor<4x128x256xbf16>
    %105 = stablehlo.multiply %104, %104 : tensor<4x128x256xbf16>
    %106 = stablehlo.convert %105 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %cst_23 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %107 = stablehlo.reduce(%106 init: %cst_23) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %108 = stablehlo.broadcast_in_dim %107, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_24 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %109 = stablehlo.broadcast_in_dim %cst_24, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %110 = stablehlo.divide %108, %109 : tensor<4x128x1xf32>
    %111 = stablehlo.convert %110 : (tensor<4x128x1xf32>) -> tensor<4x128x1xbf16>
    %cst_25 = stablehlo.constant dense<1.001360e-05> : tensor<bf16>
    %112 = stablehlo.broadcast_in_dim %cst_25, dims = [] : (tensor<bf16>) -> tensor<4x128x1xbf16>
    %113 = stablehlo.add %111, %112 : tensor<4x128x1xbf16>
    %114 = stablehlo.rsqrt %113 : tensor<4x128x1xbf16>
    %115 = stablehlo.divide %114, %113 : tensor<4x128x1xbf16>
    %cst_26 = stablehlo.constant dense<-5.000000e-01> : tensor<bf16>
    %116 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<bf16>) -> tensor<4x128x1xbf16>
    %117 = stablehlo.multiply %116, %115 : tensor<4x128x1xbf16>
    %118 = stablehlo.broadcast_in_dim %114, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %119 = stablehlo.multiply %104, %118 : tensor<4x128x256xbf16>
    %120 = stablehlo.dot_general %119, %91, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x4x64xbf16>
    %121 = stablehlo.dot_general %119, %92, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x4x64xbf16>
    %122 = stablehlo.dot_general %119, %93, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x4x64xbf16>
    %123 = stablehlo.dot_general %120, %121, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x128x4x64xbf16>) -> tensor<4x4x128x128xbf16>
    %cst_27 = stablehlo.constant dense<8.000000e+00> : tensor<bf16>
    %124 = stablehlo.broadcast_in_dim %cst_27, dims = [] : (tensor<bf16>) -> tensor<4x4x128x128xbf16>
    %125 = stablehlo.divide %123, %124 : tensor<4x4x128x128xbf16>
    %cst_28 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %126 = stablehlo.reduce(%125 init: %cst_28) applies stablehlo.maximum across dimensions = [3] : (tensor<4x4x128x128xbf16>, tensor<bf16>) -> tensor<4x4x128xbf16>
    %cst_29 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %127 = stablehlo.broadcast_in_dim %cst_29, dims = [] : (tensor<bf16>) -> tensor<4x4x128xbf16>
    %128 = stablehlo.maximum %127, %126 : tensor<4x4x128xbf16>
    %129 = stablehlo.broadcast_in_dim %128, dims = [0, 1, 2] : (tensor<4x4x128xbf16>) -> tensor<4x4x128x1xbf16>
    %130 = stablehlo.broadcast_in_dim %129, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x128xbf16>
    %131 = stablehlo.subtract %125, %130 : tensor<4x4x128x128xbf16>
    %132 = stablehlo.exponential %131 : tensor<4x4x128x128xbf16>
    %133 = stablehlo.convert %132 : (tensor<4x4x128x128xbf16>) -> tensor<4x4x128x128xf32>
    %cst_30 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %134 = stablehlo.reduce(%133 init: %cst_30) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x128xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %135 = stablehlo.broadcast_in_dim %134, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x1xf32>
    %136 = stablehlo.convert %135 : (tensor<4x4x128x1xf32>) -> tensor<4x4x128x1xbf16>
    %137 = stablehlo.broadcast_in_dim %136, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x128xbf16>
    %138 = stablehlo.divide %132, %137 : tensor<4x4x128x128xbf16>
    %139 = stablehlo.multiply %136, %136 : tensor<4x4x128x1xbf16>
    %cst_31 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %140 = stablehlo.broadcast_in_dim %cst_31, dims = [] : (tensor<bf16>) -> tensor<4x4x128x1xbf16>
    %141 = stablehlo.divide %140, %139 : tensor<4x4x128x1xbf16>
    %142 = stablehlo.dot_general %122, %138, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x4x128x128xbf16>) -> tensor<4x4x64x128xbf16>
    %143 = stablehlo.transpose %142, dims = [0, 3, 1, 2] : (tensor<4x4x64x128xbf16>) -> tensor<4x128x4x64xbf16>
    %144 = stablehlo.dot_general %143, %94, contracting_dims = [2, 3] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x64x256xbf16>) -> tensor<4x128x256xbf16>
    %145 = stablehlo.add %90, %144 : tensor<4x128x256xbf16>
    %146 = stablehlo.convert %145 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %cst_32 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %147 = stablehlo.reduce(%146 init: %cst_32) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %148 = stablehlo.broadcast_in_dim %147, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_33 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %149 = stablehlo.broadcast_in_dim %cst_33, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %150 = stablehlo.divide %148, %149 : tensor<4x128x1xf32>
    %151 = stablehlo.convert %150 : (tensor<4x128x1xf32>) -> tensor<4x128x1xbf16>
    %152 = stablehlo.broadcast_in_dim %151, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %153 = stablehlo.subtract %145, %152 : tensor<4x128x256xbf16>
    %154 = stablehlo.multiply %153, %153 : tensor<4x128x256xbf16>
    %155 = stablehlo.convert %154 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %cst_34 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %156 = stablehlo.reduce(%155 init: %cst_34) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xf32>, tensor<f32>) -> tensor<4x128xf32>
    %157 = stablehlo.broadcast_in_dim %156, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x1xf32>
    %cst_35 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %158 = stablehlo.broadcast_in_dim %cst_35, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %159 = stablehlo.divide %157, %158 : tensor<4x128x1xf32>
    %160 = stablehlo.convert %159 : (tensor<4x128x1xf32>) -> tensor<4x128x1xbf16>
    %cst_36 = stablehlo.constant dense<1.001360e-05> : tensor<bf16>
    %161 = stablehlo.broadcast_in_dim %cst_36, dims = [] : (tensor<bf16>) -> tensor<4x128x1xbf16>
    %162 = stablehlo.add %160, %161 : tensor<4x128x1xbf16>
    %163 = stablehlo.rsqrt %162 : tensor<4x128x1xbf16>
    %164 = stablehlo.divide %163, %162 : tensor<4x128x1xbf16>
    %cst_37 = stablehlo.constant dense<-5.000000e-01> : tensor<bf16>
    %165 = stablehlo.broadcast_in_dim %cst_37, dims = [] : (tensor<bf16>) -> tensor<4x128x1xbf16>
    %166 = stablehlo.multiply %165, %164 : tensor<4x128x1xbf16>
    %167 = stablehlo.broadcast_in_dim %163, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %168 = stablehlo.multiply %153, %167 : tensor<4x128x256xbf16>
    %169 = stablehlo.dot_general %168, %95, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<256x1024xbf16>) -> tensor<4x128x1024xbf16>
    %cst_38 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %170 = stablehlo.broadcast_in_dim %cst_38, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %171 = stablehlo.maximum %169, %170 : tensor<4x128x1024xbf16>
    %172 = stablehlo.compare EQ, %169, %171, FLOAT : (tensor<4x128x1024xbf16>, tensor<4x128x1024xbf16>) -> tensor<4x128x1024xi1>
    %cst_39 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %173 = stablehlo.broadcast_in_dim %cst_39, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %cst_40 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %174 = stablehlo.broadcast_in_dim %cst_40, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %175 = stablehlo.select %172, %173, %174 : tensor<4x128x1024xi1>, tensor<4x128x1024xbf16>
    %cst_41 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %176 = stablehlo.broadcast_in_dim %cst_41, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %177 = stablehlo.compare EQ, %176, %171, FLOAT : (tensor<4x128x1024xbf16>, tensor<4x128x1024xbf16>) -> tensor<4x128x1024xi1>
    %cst_42 = stablehlo.constant dense<2.000000e+00> : tensor<bf16>
    %178 = stablehlo.broadcast_in_dim %cst_42, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %cst_43 = stablehlo.constant dense<1.000000e+00> : tensor<bf16>
    %179 = stablehlo.broadcast_in_dim %cst_43, dims = [] : (tensor<bf16>) -> tensor<4x128x1024xbf16>
    %180 = stablehlo.select %177, %178, %179 : tensor<4x128x1024xi1>, tensor<4x128x1024xbf16>
    %181 = stablehlo.divide %175, %180 : tensor<4x128x1024xbf16>
    %182 = stablehlo.dot_general %171, %96, contracting_dims = [2] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xbf16>, tensor<1024x256xbf16>) -> tensor<4x128x256xbf16>
    %183 = stablehlo.add %145, %182 : tensor<4x128x256xbf16>
    %184 = stablehlo.convert %183 : (tensor<4x128x256xbf16>) -> tensor<4x128x256xf32>
    %185 = call @_roll_static(%arg12) : (tensor<4x128x256xf32>) -> tensor<4x128x256xf32>
    %186 = stablehlo.subtract %184, %185 : tensor<4x128x256xf32>
    %cst_44 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %187 = stablehlo.broadcast_in_dim %cst_44, dims = [] : (tensor<f32>) -> tensor<4x128x256xf32>
    %188 = stablehlo.multiply %187, %186 : tensor<4x128x256xf32>
    %cst_45 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_46 = stablehlo.constant dense<1.310720e+05> : tensor<f32>
    %189 = stablehlo.divide %cst_45, %cst_46 : tensor<f32>
    %190 = stablehlo.broadcast_in_dim %189, dims = [] : (tensor<f32>) -> tensor<4x128x256xf32>
    %191 = stablehlo.multiply %190, %188 : tensor<4x128x256xf32>
    %192 = stablehlo.convert %191 : (tensor<4x128x256xf32>) -> tensor<4x128x256xbf16>
    %193 = stablehlo.dot_general %192, %171, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<4x128x1024xbf16>) -> tensor<256x1024xbf16>
    %194 = stablehlo.transpose %193, dims = [1, 0] : (tensor<256x1024xbf16>) -> tensor<1024x256xbf16>
    %195 = stablehlo.dot_general %192, %96, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<1024x256xbf16>) -> tensor<4x128x1024xbf16>
    %196 = stablehlo.multiply %195, %181 : tensor<4x128x1024xbf16>
    %197 = stablehlo.dot_general %196, %168, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xbf16>, tensor<4x128x256xbf16>) -> tensor<1024x256xbf16>
    %198 = stablehlo.transpose %197, dims = [1, 0] : (tensor<1024x256xbf16>) -> tensor<256x1024xbf16>
    %199 = stablehlo.dot_general %196, %95, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xbf16>, tensor<256x1024xbf16>) -> tensor<4x128x256xbf16>
    %200 = stablehlo.multiply %153, %199 : tensor<4x128x256xbf16>
    %cst_47 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %201 = stablehlo.reduce(%200 init: %cst_47) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xbf16>, tensor<bf16>) -> tensor<4x128xbf16>
    %202 = stablehlo.reshape %201 : (tensor<4x128xbf16>) -> tensor<4x128x1xbf16>
    %203 = stablehlo.broadcast_in_dim %163, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %204 = stablehlo.multiply %199, %203 : tensor<4x128x256xbf16>
    %205 = stablehlo.multiply %202, %166 : tensor<4x128x1xbf16>
    %206 = stablehlo.convert %205 : (tensor<4x128x1xbf16>) -> tensor<4x128x1xf32>
    %cst_48 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %207 = stablehlo.broadcast_in_dim %cst_48, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %208 = stablehlo.divide %206, %207 : tensor<4x128x1xf32>
    %cst_49 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %209 = stablehlo.reduce(%208 init: %cst_49) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %210 = stablehlo.broadcast_in_dim %209, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %211 = stablehlo.convert %210 : (tensor<4x128x256xf32>) -> tensor<4x128x256xbf16>
    %212 = stablehlo.multiply %153, %211 : tensor<4x128x256xbf16>
    %213 = stablehlo.add %204, %212 : tensor<4x128x256xbf16>
    %214 = stablehlo.multiply %211, %153 : tensor<4x128x256xbf16>
    %215 = stablehlo.add %213, %214 : tensor<4x128x256xbf16>
    %216 = stablehlo.negate %215 : tensor<4x128x256xbf16>
    %cst_50 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %217 = stablehlo.reduce(%216 init: %cst_50) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xbf16>, tensor<bf16>) -> tensor<4x128xbf16>
    %218 = stablehlo.reshape %217 : (tensor<4x128xbf16>) -> tensor<4x128x1xbf16>
    %219 = stablehlo.add %192, %215 : tensor<4x128x256xbf16>
    %220 = stablehlo.convert %218 : (tensor<4x128x1xbf16>) -> tensor<4x128x1xf32>
    %cst_51 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %221 = stablehlo.broadcast_in_dim %cst_51, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %222 = stablehlo.divide %220, %221 : tensor<4x128x1xf32>
    %cst_52 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %223 = stablehlo.reduce(%222 init: %cst_52) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %224 = stablehlo.broadcast_in_dim %223, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %225 = stablehlo.convert %224 : (tensor<4x128x256xf32>) -> tensor<4x128x256xbf16>
    %226 = stablehlo.add %219, %225 : tensor<4x128x256xbf16>
    %227 = stablehlo.dot_general %226, %143, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<4x128x4x64xbf16>) -> tensor<256x4x64xbf16>
    %228 = stablehlo.transpose %227, dims = [1, 2, 0] : (tensor<256x4x64xbf16>) -> tensor<4x64x256xbf16>
    %229 = stablehlo.dot_general %226, %94, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<4x64x256xbf16>) -> tensor<4x128x4x64xbf16>
    %230 = stablehlo.transpose %229, dims = [0, 2, 3, 1] : (tensor<4x128x4x64xbf16>) -> tensor<4x4x64x128xbf16>
    %231 = stablehlo.dot_general %230, %122, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x4x64x128xbf16>, tensor<4x128x4x64xbf16>) -> tensor<4x4x128x128xbf16>
    %232 = stablehlo.dot_general %230, %138, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4x4x64x128xbf16>, tensor<4x4x128x128xbf16>) -> tensor<4x4x64x128xbf16>
    %233 = stablehlo.transpose %232, dims = [0, 3, 1, 2] : (tensor<4x4x64x128xbf16>) -> tensor<4x128x4x64xbf16>
    %234 = stablehlo.broadcast_in_dim %141, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x128xbf16>
    %235 = stablehlo.multiply %231, %234 : tensor<4x4x128x128xbf16>
    %236 = stablehlo.multiply %235, %132 : tensor<4x4x128x128xbf16>
    %cst_53 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %237 = stablehlo.reduce(%236 init: %cst_53) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x128xbf16>, tensor<bf16>) -> tensor<4x4x128xbf16>
    %238 = stablehlo.reshape %237 : (tensor<4x4x128xbf16>) -> tensor<4x4x128x1xbf16>
    %239 = stablehlo.negate %238 : tensor<4x4x128x1xbf16>
    %240 = stablehlo.broadcast_in_dim %136, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x128xbf16>
    %241 = stablehlo.divide %231, %240 : tensor<4x4x128x128xbf16>
    %242 = stablehlo.convert %239 : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x1xf32>
    %cst_54 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %243 = stablehlo.reduce(%242 init: %cst_54) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x1xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %244 = stablehlo.broadcast_in_dim %243, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x128xf32>
    %245 = stablehlo.convert %244 : (tensor<4x4x128x128xf32>) -> tensor<4x4x128x128xbf16>
    %246 = stablehlo.add %241, %245 : tensor<4x4x128x128xbf16>
    %247 = stablehlo.multiply %246, %132 : tensor<4x4x128x128xbf16>
    %cst_55 = stablehlo.constant dense<8.000000e+00> : tensor<bf16>
    %248 = stablehlo.broadcast_in_dim %cst_55, dims = [] : (tensor<bf16>) -> tensor<4x4x128x128xbf16>
    %249 = stablehlo.divide %247, %248 : tensor<4x4x128x128xbf16>
    %250 = stablehlo.dot_general %249, %120, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x4x128x128xbf16>, tensor<4x128x4x64xbf16>) -> tensor<4x4x128x64xbf16>
    %251 = stablehlo.transpose %250, dims = [0, 2, 1, 3] : (tensor<4x4x128x64xbf16>) -> tensor<4x128x4x64xbf16>
    %252 = stablehlo.dot_general %249, %121, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x4x128x128xbf16>, tensor<4x128x4x64xbf16>) -> tensor<4x4x128x64xbf16>
    %253 = stablehlo.transpose %252, dims = [0, 2, 1, 3] : (tensor<4x4x128x64xbf16>) -> tensor<4x128x4x64xbf16>
    %254 = stablehlo.dot_general %233, %119, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x128x256xbf16>) -> tensor<4x64x256xbf16>
    %255 = stablehlo.transpose %254, dims = [2, 0, 1] : (tensor<4x64x256xbf16>) -> tensor<256x4x64xbf16>
    %256 = stablehlo.dot_general %233, %93, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x256xbf16>
    %257 = stablehlo.dot_general %251, %119, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x128x256xbf16>) -> tensor<4x64x256xbf16>
    %258 = stablehlo.transpose %257, dims = [2, 0, 1] : (tensor<4x64x256xbf16>) -> tensor<256x4x64xbf16>
    %259 = stablehlo.dot_general %251, %92, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x256xbf16>
    %260 = stablehlo.add %256, %259 : tensor<4x128x256xbf16>
    %261 = stablehlo.dot_general %253, %119, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x128x256xbf16>) -> tensor<4x64x256xbf16>
    %262 = stablehlo.transpose %261, dims = [2, 0, 1] : (tensor<4x64x256xbf16>) -> tensor<256x4x64xbf16>
    %263 = stablehlo.dot_general %253, %91, contracting_dims = [2, 3] x [1, 2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<256x4x64xbf16>) -> tensor<4x128x256xbf16>
    %264 = stablehlo.add %260, %263 : tensor<4x128x256xbf16>
    %265 = stablehlo.multiply %104, %264 : tensor<4x128x256xbf16>
    %cst_56 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %266 = stablehlo.reduce(%265 init: %cst_56) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xbf16>, tensor<bf16>) -> tensor<4x128xbf16>
    %267 = stablehlo.reshape %266 : (tensor<4x128xbf16>) -> tensor<4x128x1xbf16>
    %268 = stablehlo.broadcast_in_dim %114, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %269 = stablehlo.multiply %264, %268 : tensor<4x128x256xbf16>
    %270 = stablehlo.multiply %267, %117 : tensor<4x128x1xbf16>
    %271 = stablehlo.convert %270 : (tensor<4x128x1xbf16>) -> tensor<4x128x1xf32>
    %cst_57 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %272 = stablehlo.broadcast_in_dim %cst_57, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %273 = stablehlo.divide %271, %272 : tensor<4x128x1xf32>
    %cst_58 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %274 = stablehlo.reduce(%273 init: %cst_58) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %275 = stablehlo.broadcast_in_dim %274, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %276 = stablehlo.convert %275 : (tensor<4x128x256xf32>) -> tensor<4x128x256xbf16>
    %277 = stablehlo.multiply %104, %276 : tensor<4x128x256xbf16>
    %278 = stablehlo.add %269, %277 : tensor<4x128x256xbf16>
    %279 = stablehlo.multiply %276, %104 : tensor<4x128x256xbf16>
    %280 = stablehlo.add %278, %279 : tensor<4x128x256xbf16>
    %281 = stablehlo.negate %280 : tensor<4x128x256xbf16>
    %cst_59 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %282 = stablehlo.reduce(%281 init: %cst_59) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xbf16>, tensor<bf16>) -> tensor<4x128xbf16>
    %283 = stablehlo.reshape %282 : (tensor<4x128xbf16>) -> tensor<4x128x1xbf16>
    %284 = stablehlo.add %226, %280 : tensor<4x128x256xbf16>
    %285 = stablehlo.convert %283 : (tensor<4x128x1xbf16>) -> tensor<4x128x1xf32>
    %cst_60 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %286 = stablehlo.broadcast_in_dim %cst_60, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %287 = stablehlo.divide %285, %286 : tensor<4x128x1xf32>
    %cst_61 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %288 = stablehlo.reduce(%287 init: %cst_61) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %289 = stablehlo.broadcast_in_dim %288, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %290 = stablehlo.convert %289 : (tensor<4x128x256xf32>) -> tensor<4x128x256xbf16>
    %291 = stablehlo.add %284, %290 : tensor<4x128x256xbf16>
    %292 = stablehlo.convert %194 : (tensor<1024x256xbf16>) -> tensor<1024x256xf32>
    %293 = stablehlo.convert %198 : (tensor<256x1024xbf16>) -> tensor<256x1024xf32>
    %294 = stablehlo.convert %228 : (tensor<4x64x256xbf16>) -> tensor<4x64x256xf32>
    %295 = stablehlo.convert %255 : (tensor<256x4x64xbf16>) -> tensor<256x4x64xf32>
    %296 = stablehlo.convert %258 : (tensor<256x4x64xbf16>) -> tensor<256x4x64xf32>
    %297 = stablehlo.convert %262 : (tensor<256x4x64xbf16>) -> tensor<256x4x64xf32>
    %298 = stablehlo.dot_general %291, %78, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<4x128x1024xbf16>) -> tensor<256x1024xbf16>
    %299 = stablehlo.transpose %298, dims = [1, 0] : (tensor<256x1024xbf16>) -> tensor<1024x256xbf16>
    %300 = stablehlo.dot_general %291, %6, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<1024x256xbf16>) -> tensor<4x128x1024xbf16>
    %301 = stablehlo.multiply %300, %88 : tensor<4x128x1024xbf16>
    %302 = stablehlo.dot_general %301, %75, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xbf16>, tensor<4x128x256xbf16>) -> tensor<1024x256xbf16>
    %303 = stablehlo.transpose %302, dims = [1, 0] : (tensor<1024x256xbf16>) -> tensor<256x1024xbf16>
    %304 = stablehlo.dot_general %301, %5, contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x1024xbf16>, tensor<256x1024xbf16>) -> tensor<4x128x256xbf16>
    %305 = stablehlo.multiply %60, %304 : tensor<4x128x256xbf16>
    %cst_62 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %306 = stablehlo.reduce(%305 init: %cst_62) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xbf16>, tensor<bf16>) -> tensor<4x128xbf16>
    %307 = stablehlo.reshape %306 : (tensor<4x128xbf16>) -> tensor<4x128x1xbf16>
    %308 = stablehlo.broadcast_in_dim %70, dims = [0, 1, 2] : (tensor<4x128x1xbf16>) -> tensor<4x128x256xbf16>
    %309 = stablehlo.multiply %304, %308 : tensor<4x128x256xbf16>
    %310 = stablehlo.multiply %307, %73 : tensor<4x128x1xbf16>
    %311 = stablehlo.convert %310 : (tensor<4x128x1xbf16>) -> tensor<4x128x1xf32>
    %cst_63 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %312 = stablehlo.broadcast_in_dim %cst_63, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %313 = stablehlo.divide %311, %312 : tensor<4x128x1xf32>
    %cst_64 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %314 = stablehlo.reduce(%313 init: %cst_64) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %315 = stablehlo.broadcast_in_dim %314, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %316 = stablehlo.convert %315 : (tensor<4x128x256xf32>) -> tensor<4x128x256xbf16>
    %317 = stablehlo.multiply %60, %316 : tensor<4x128x256xbf16>
    %318 = stablehlo.add %309, %317 : tensor<4x128x256xbf16>
    %319 = stablehlo.multiply %316, %60 : tensor<4x128x256xbf16>
    %320 = stablehlo.add %318, %319 : tensor<4x128x256xbf16>
    %321 = stablehlo.negate %320 : tensor<4x128x256xbf16>
    %cst_65 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %322 = stablehlo.reduce(%321 init: %cst_65) applies stablehlo.add across dimensions = [2] : (tensor<4x128x256xbf16>, tensor<bf16>) -> tensor<4x128xbf16>
    %323 = stablehlo.reshape %322 : (tensor<4x128xbf16>) -> tensor<4x128x1xbf16>
    %324 = stablehlo.add %291, %320 : tensor<4x128x256xbf16>
    %325 = stablehlo.convert %323 : (tensor<4x128x1xbf16>) -> tensor<4x128x1xf32>
    %cst_66 = stablehlo.constant dense<2.560000e+02> : tensor<f32>
    %326 = stablehlo.broadcast_in_dim %cst_66, dims = [] : (tensor<f32>) -> tensor<4x128x1xf32>
    %327 = stablehlo.divide %325, %326 : tensor<4x128x1xf32>
    %cst_67 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %328 = stablehlo.reduce(%327 init: %cst_67) applies stablehlo.add across dimensions = [2] : (tensor<4x128x1xf32>, tensor<f32>) -> tensor<4x128xf32>
    %329 = stablehlo.broadcast_in_dim %328, dims = [0, 1] : (tensor<4x128xf32>) -> tensor<4x128x256xf32>
    %330 = stablehlo.convert %329 : (tensor<4x128x256xf32>) -> tensor<4x128x256xbf16>
    %331 = stablehlo.add %324, %330 : tensor<4x128x256xbf16>
    %332 = stablehlo.dot_general %331, %50, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<4x128x4x64xbf16>) -> tensor<256x4x64xbf16>
    %333 = stablehlo.transpose %332, dims = [1, 2, 0] : (tensor<256x4x64xbf16>) -> tensor<4x64x256xbf16>
    %334 = stablehlo.dot_general %331, %4, contracting_dims = [2] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4x128x256xbf16>, tensor<4x64x256xbf16>) -> tensor<4x128x4x64xbf16>
    %335 = stablehlo.transpose %334, dims = [0, 2, 3, 1] : (tensor<4x128x4x64xbf16>) -> tensor<4x4x64x128xbf16>
    %336 = stablehlo.dot_general %335, %29, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [3], precision = [DEFAULT, DEFAULT] : (tensor<4x4x64x128xbf16>, tensor<4x128x4x64xbf16>) -> tensor<4x4x128x128xbf16>
    %337 = stablehlo.dot_general %335, %45, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2], precision = [DEFAULT, DEFAULT] : (tensor<4x4x64x128xbf16>, tensor<4x4x128x128xbf16>) -> tensor<4x4x64x128xbf16>
    %338 = stablehlo.transpose %337, dims = [0, 3, 1, 2] : (tensor<4x4x64x128xbf16>) -> tensor<4x128x4x64xbf16>
    %339 = stablehlo.broadcast_in_dim %48, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x128xbf16>
    %340 = stablehlo.multiply %336, %339 : tensor<4x4x128x128xbf16>
    %341 = stablehlo.multiply %340, %39 : tensor<4x4x128x128xbf16>
    %cst_68 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %342 = stablehlo.reduce(%341 init: %cst_68) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x128xbf16>, tensor<bf16>) -> tensor<4x4x128xbf16>
    %343 = stablehlo.reshape %342 : (tensor<4x4x128xbf16>) -> tensor<4x4x128x1xbf16>
    %344 = stablehlo.negate %343 : tensor<4x4x128x1xbf16>
    %345 = stablehlo.broadcast_in_dim %43, dims = [0, 1, 2, 3] : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x128xbf16>
    %346 = stablehlo.divide %336, %345 : tensor<4x4x128x128xbf16>
    %347 = stablehlo.convert %344 : (tensor<4x4x128x1xbf16>) -> tensor<4x4x128x1xf32>
    %cst_69 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %348 = stablehlo.reduce(%347 init: %cst_69) applies stablehlo.add across dimensions = [3] : (tensor<4x4x128x1xf32>, tensor<f32>) -> tensor<4x4x128xf32>
    %349 = stablehlo.broadcast_in_dim %348, dims = [0, 1, 2] : (tensor<4x4x128xf32>) -> tensor<4x4x128x128xf32>
    %350 = stablehlo.convert %349 : (tensor<4x4x128x128xf32>) -> tensor<4x4x128x128xbf16>
    %351 = stablehlo.add %346, %350 : tensor<4x4x128x128xbf16>
    %352 = stablehlo.multiply %351, %39 : tensor<4x4x128x128xbf16>
    %cst_70 = stablehlo.constant dense<8.000000e+00> : tensor<bf16>
    %353 = stablehlo.broadcast_in_dim %cst_70, dims = [] : (tensor<bf16>) -> tensor<4x4x128x128xbf16>
    %354 = stablehlo.divide %352, %353 : tensor<4x4x128x128xbf16>
    %355 = stablehlo.dot_general %354, %27, batching_dims = [0, 1] x [0, 2], contracting_dims = [2] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x4x128x128xbf16>, tensor<4x128x4x64xbf16>) -> tensor<4x4x128x64xbf16>
    %356 = stablehlo.transpose %355, dims = [0, 2, 1, 3] : (tensor<4x4x128x64xbf16>) -> tensor<4x128x4x64xbf16>
    %357 = stablehlo.dot_general %354, %28, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [1], precision = [DEFAULT, DEFAULT] : (tensor<4x4x128x128xbf16>, tensor<4x128x4x64xbf16>) -> tensor<4x4x128x64xbf16>
    %358 = stablehlo.transpose %357, dims = [0, 2, 1, 3] : (tensor<4x4x128x64xbf16>) -> tensor<4x128x4x64xbf16>
    %359 = stablehlo.dot_general %338, %26, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x128x256xbf16>) -> tensor<4x64x256xbf16>
    %360 = stablehlo.transpose %359, dims = [2, 0, 1] : (tensor<4x64x256xbf16>) -> tensor<256x4x64xbf16>
    %361 = stablehlo.dot_general %356, %26, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x128x256xbf16>) -> tensor<4x64x256xbf16>
    %362 = stablehlo.transpose %361, dims = [2, 0, 1] : (tensor<4x64x256xbf16>) -> tensor<256x4x64xbf16>
    %363 = stablehlo.dot_general %358, %26, contracting_dims = [0, 1] x [0, 1], precision = [DEFAULT, DEFAULT] : (tensor<4x128x4x64xbf16>, tensor<4x128x256xbf16>) -> tensor<4x64x256xbf16>
    %364 = stablehlo.transpose %363, dims = [2, 0, 1] : (tensor<4x64x256xbf16>) -> tensor<256x4x64xbf16>
    %365 = stablehlo.convert %299 : (tensor<1024x256xbf16>) -> tensor<1024x256xf32>
    %366 = stablehlo.convert %303 : (tensor<256x1024xbf16>) -> tensor<256x1024xf32>
    %367 = stablehlo.convert %333 : (tensor<4x64x256xbf16>) -> tensor<4x64x256xf32>
    %368 = stablehlo.convert %360 : (tensor<256x4x64xbf16>) -> tensor<256x4x64xf32>
    %369 = stablehlo.convert %362 : (tensor<256x4x64xbf16>) -> tensor<256x4x64xf32>
    %370 = stablehlo.convert %364 : (tensor<256x4x64xbf16>) -> tensor<256x4x64xf32>
    %cst_71 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %371 = stablehlo.broadcast_in_dim %cst_71, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %372 = stablehlo.multiply %371, %370 : tensor<256x4x64xf32>
    %373 = stablehlo.subtract %arg0, %372 : tensor<256x4x64xf32>
    %cst_72 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %374 = stablehlo.broadcast_in_dim %cst_72, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %375 = stablehlo.multiply %374, %369 : tensor<256x4x64xf32>
    %376 = stablehlo.subtract %arg1, %375 : tensor<256x4x64xf32>
    %cst_73 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %377 = stablehlo.broadcast_in_dim %cst_73, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %378 = stablehlo.multiply %377, %368 : tensor<256x4x64xf32>
    %379 = stablehlo.subtract %arg2, %378 : tensor<256x4x64xf32>
    %cst_74 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %380 = stablehlo.broadcast_in_dim %cst_74, dims = [] : (tensor<f32>) -> tensor<4x64x256xf32>
    %381 = stablehlo.multiply %380, %367 : tensor<4x64x256xf32>
    %382 = stablehlo.subtract %arg3, %381 : tensor<4x64x256xf32>
    %cst_75 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %383 = stablehlo.broadcast_in_dim %cst_75, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %384 = stablehlo.multiply %383, %366 : tensor<256x1024xf32>
    %385 = stablehlo.subtract %arg4, %384 : tensor<256x1024xf32>
    %cst_76 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %386 = stablehlo.broadcast_in_dim %cst_76, dims = [] : (tensor<f32>) -> tensor<1024x256xf32>
    %387 = stablehlo.multiply %386, %365 : tensor<1024x256xf32>
    %388 = stablehlo.subtract %arg5, %387 : tensor<1024x256xf32>
    %cst_77 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %389 = stablehlo.broadcast_in_dim %cst_77, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %390 = stablehlo.multiply %389, %297 : tensor<256x4x64xf32>
    %391 = stablehlo.subtract %arg6, %390 : tensor<256x4x64xf32>
    %cst_78 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %392 = stablehlo.broadcast_in_dim %cst_78, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %393 = stablehlo.multiply %392, %296 : tensor<256x4x64xf32>
    %394 = stablehlo.subtract %arg7, %393 : tensor<256x4x64xf32>
    %cst_79 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %395 = stablehlo.broadcast_in_dim %cst_79, dims = [] : (tensor<f32>) -> tensor<256x4x64xf32>
    %396 = stablehlo.multiply %395, %295 : tensor<256x4x64xf32>
    %397 = stablehlo.subtract %arg8, %396 : tensor<256x4x64xf32>
    %cst_80 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %398 = stablehlo.broadcast_in_dim %cst_80, dims = [] : (tensor<f32>) -> tensor<4x64x256xf32>
    %399 = stablehlo.multiply %398, %294 : tensor<4x64x256xf32>
    %400 = stablehlo.subtract %arg9, %399 : tensor<4x64x256xf32>
    %cst_81 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %401 = stablehlo.broadcast_in_dim %cst_81, dims = [] : (tensor<f32>) -> tensor<256x1024xf32>
    %402 = stablehlo.multiply %401, %293 : tensor<256x1024xf32>
    %403 = stablehlo.subtract %arg10, %402 : tensor<256x1024xf32>
    %cst_82 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %404 = stablehlo.broadcast_in_dim %cst_82, dims = [] : (tensor<f32>) -> tensor<1024x256xf32>
    %405 = stablehlo.multiply %404, %292 : tensor<1024x256xf32>
    %406 = stablehlo.subtract %arg11, %405 : tensor<1024x256xf32>
    return %373, %376, %379, %382, %385, %388, %391, %394, %397, %400, %403, %406 : tensor<256x4x64xf32>, tensor<256x4x64xf32>, tensor<256x4x64xf32>, tensor<4x64x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>, tensor<256x4x64xf32>, tensor<256x4x64xf32>, tensor<256x4x64xf32>, tensor<4x64x256xf32>, tensor<256x1024xf32>, tensor<1024x256xf32>
  }
  func.func private @_roll_static(%arg0: tensor<4x128x256xf32>) -> tensor<4x128x256xf32> {
    %0 = stablehlo.slice %arg0 [0:4, 127:128, 0:256] : (tensor<4x128x256xf32>) -> tensor<4x1x256xf32>
    %1 = stablehlo.slice %arg0 [0:4, 0:127, 0:256] : (tensor<4x128x256xf32>) -> tensor<4x127x256xf32>
    %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<4x1x256xf32>, tensor<4x127x256xf32>) -> tensor<4x128x256xf32>
    return %2 : tensor<4x128x256xf32>
  }
}
