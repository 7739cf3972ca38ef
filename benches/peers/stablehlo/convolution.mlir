module @jit_convolution attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3x3x16x32xf32>, %arg1: tensor<3x3x32x32xf32>, %arg2: tensor<16x28x28x16xf32>) -> (tensor<3x3x16x32xf32> {jax.result_info = "result[0]"}, tensor<3x3x32x32xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.convolution(%arg2, %arg0) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<16x28x28x16xf32>, tensor<3x3x16x32xf32>) -> tensor<16x28x28x32xf32>
    %1 = call @relu(%0) : (tensor<16x28x28x32xf32>) -> tensor<16x28x28x32xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x28x28x32xf32>
    %3 = stablehlo.compare GT, %0, %2, FLOAT : (tensor<16x28x28x32xf32>, tensor<16x28x28x32xf32>) -> tensor<16x28x28x32xi1>
    %4 = stablehlo.convolution(%1, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[0, 1], [0, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<16x28x28x32xf32>, tensor<3x3x32x32xf32>) -> tensor<16x14x14x32xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<16x14x14x32xf32>
    %6 = stablehlo.multiply %5, %4 : tensor<16x14x14x32xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_2 = stablehlo.constant dense<1.003520e+05> : tensor<f32>
    %7 = stablehlo.divide %cst_1, %cst_2 : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<16x14x14x32xf32>
    %9 = stablehlo.multiply %8, %6 : tensor<16x14x14x32xf32>
    %10 = stablehlo.convolution(%1, %9) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {stride = [1, 1], pad = [[0, 1], [0, 1]], lhs_dilate = [1, 1], rhs_dilate = [2, 2], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<16x28x28x32xf32>, tensor<16x14x14x32xf32>) -> tensor<3x3x32x32xf32>
    %11 = stablehlo.reverse %arg1, dims = [0, 1] : tensor<3x3x32x32xf32>
    %12 = stablehlo.convolution(%9, %11) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[2, 1], [2, 1]], lhs_dilate = [2, 2], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<16x14x14x32xf32>, tensor<3x3x32x32xf32>) -> tensor<16x28x28x32xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<16x28x28x32xf32>
    %14 = stablehlo.select %3, %12, %13 : tensor<16x28x28x32xi1>, tensor<16x28x28x32xf32>
    %15 = stablehlo.convolution(%arg2, %14) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<16x28x28x16xf32>, tensor<16x28x28x32xf32>) -> tensor<3x3x16x32xf32>
    %cst_4 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %16 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<3x3x16x32xf32>
    %17 = stablehlo.multiply %16, %15 : tensor<3x3x16x32xf32>
    %18 = stablehlo.subtract %arg0, %17 : tensor<3x3x16x32xf32>
    %cst_5 = stablehlo.constant dense<0.00999999977> : tensor<f32>
    %19 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<3x3x32x32xf32>
    %20 = stablehlo.multiply %19, %10 : tensor<3x3x32x32xf32>
    %21 = stablehlo.subtract %arg1, %20 : tensor<3x3x32x32xf32>
    return %18, %21 : tensor<3x3x16x32xf32>, tensor<3x3x32x32xf32>
  }
  func.func private @relu(%arg0: tensor<16x28x28x32xf32>) -> tensor<16x28x28x32xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<16x28x28x32xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<16x28x28x32xf32>
    return %1 : tensor<16x28x28x32xf32>
  }
}
