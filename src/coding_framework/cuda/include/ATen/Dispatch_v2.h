// AT_DISPATCH_V2: a switch over a list of dtypes, in which AT_EXPAND puts whole families.
#pragma once
#include <torch/extension.h>

#define AT_WRAP(...) __VA_ARGS__
#define AT_EXPAND(...) __VA_ARGS__
#define AT_FLOATING_TYPES ::c10::ScalarType::Double, ::c10::ScalarType::Float
#define AT_INTEGRAL_TYPES                                                                   \
  ::c10::ScalarType::Byte, ::c10::ScalarType::Char, ::c10::ScalarType::Int, ::c10::ScalarType::Long, \
      ::c10::ScalarType::Short
#define AT_ALL_TYPES AT_INTEGRAL_TYPES, AT_FLOATING_TYPES
#define AT_DISPATCH_V2(TYPE, NAME, BODY, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, CF_EACH(AT_WRAP(BODY), __VA_ARGS__))
#define CF_EACH(BODY, ...) \
  CF_EACH_NUMBERED(__VA_ARGS__, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_NUMBERED(...) CF_EACH_PICKED(__VA_ARGS__)
#define CF_EACH_PICKED(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, COUNT, ...) CF_EACH_##COUNT
#define CF_EACH_1(BODY, ENUM) AT_DISPATCH_CASE(ENUM, AT_WRAP(BODY))
#define CF_EACH_2(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_1(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_3(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_2(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_4(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_3(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_5(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_4(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_6(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_5(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_7(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_6(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_8(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_7(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_9(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_8(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_10(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_9(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_11(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_10(AT_WRAP(BODY), __VA_ARGS__)
#define CF_EACH_12(BODY, ENUM, ...) CF_EACH_1(AT_WRAP(BODY), ENUM) CF_EACH_11(AT_WRAP(BODY), __VA_ARGS__)
