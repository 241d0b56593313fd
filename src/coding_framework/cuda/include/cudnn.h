// cuDNN, rejected by name: a kernel that includes it gets as far as its first call.
#pragma once
#include "coding_framework/rejected_library.h"

typedef struct cudnnContext* cudnnHandle_t;
typedef struct cudnnTensorStruct* cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct* cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct* cudnnConvolutionDescriptor_t;
typedef struct cudnnPoolingStruct* cudnnPoolingDescriptor_t;
typedef struct cudnnActivationStruct* cudnnActivationDescriptor_t;
enum cudnnStatus_t { CUDNN_STATUS_SUCCESS, CUDNN_STATUS_NOT_INITIALIZED };
enum cudnnDataType_t { CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_HALF };
enum cudnnTensorFormat_t { CUDNN_TENSOR_NCHW, CUDNN_TENSOR_NHWC };
enum cudnnConvolutionMode_t { CUDNN_CONVOLUTION, CUDNN_CROSS_CORRELATION };
enum cudnnActivationMode_t {
  CUDNN_ACTIVATION_SIGMOID, CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_TANH, CUDNN_ACTIVATION_IDENTITY = 5
};
enum cudnnNanPropagation_t { CUDNN_NOT_PROPAGATE_NAN, CUDNN_PROPAGATE_NAN };
enum cudnnSoftmaxAlgorithm_t { CUDNN_SOFTMAX_FAST, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_LOG };
enum cudnnSoftmaxMode_t { CUDNN_SOFTMAX_MODE_INSTANCE, CUDNN_SOFTMAX_MODE_CHANNEL };
enum cudnnPoolingMode_t { CUDNN_POOLING_MAX };
enum cudnnConvolutionFwdAlgo_t {
  CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
};
struct cudnnConvolutionFwdAlgoPerf_t {
  cudnnConvolutionFwdAlgo_t algo;
};

#define CF_DNN(NAME) CF_REJECTED_CALL(cudnnStatus_t, NAME)
CF_DNN(cudnnCreate) CF_DNN(cudnnDestroy) CF_DNN(cudnnSetStream)
CF_DNN(cudnnCreateTensorDescriptor) CF_DNN(cudnnDestroyTensorDescriptor)
CF_DNN(cudnnSetTensor4dDescriptor) CF_DNN(cudnnSetTensorNdDescriptor)
CF_DNN(cudnnCreateFilterDescriptor) CF_DNN(cudnnDestroyFilterDescriptor)
CF_DNN(cudnnSetFilter4dDescriptor) CF_DNN(cudnnCreateConvolutionDescriptor)
CF_DNN(cudnnDestroyConvolutionDescriptor) CF_DNN(cudnnSetConvolution2dDescriptor)
CF_DNN(cudnnSetConvolutionMathType) CF_DNN(cudnnSetConvolutionGroupCount)
CF_DNN(cudnnGetConvolutionForwardAlgorithm_v7) CF_DNN(cudnnGetConvolutionForwardWorkspaceSize)
CF_DNN(cudnnGetConvolution2dForwardOutputDim) CF_DNN(cudnnConvolutionForward)
CF_DNN(cudnnConvolutionBiasActivationForward) CF_DNN(cudnnConvolutionBackwardData)
CF_DNN(cudnnAddTensor) CF_DNN(cudnnOpTensor) CF_DNN(cudnnActivationForward)
CF_DNN(cudnnCreateActivationDescriptor) CF_DNN(cudnnSetActivationDescriptor)
CF_DNN(cudnnDestroyActivationDescriptor) CF_DNN(cudnnSoftmaxForward)
CF_DNN(cudnnCreatePoolingDescriptor) CF_DNN(cudnnSetPooling2dDescriptor)
CF_DNN(cudnnPoolingForward) CF_DNN(cudnnBatchNormalizationForwardInference)
inline const char* cudnnGetErrorString(cudnnStatus_t) { return "cuDNN is not available"; }
#undef CF_DNN
