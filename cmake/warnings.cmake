# ooc_library(NAME sources...): a static library of one room with the project's warnings and macros.
add_library(ooc_flags INTERFACE)
target_compile_options(ooc_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wconversion -Wundef -Wmissing-prototypes
  -Wstrict-prototypes -Wvla -Wformat=2 -fno-math-errno -ffp-contract=off>)
if(OOC_WERROR)
  target_compile_options(ooc_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
target_include_directories(ooc_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(ooc_flags INTERFACE _GNU_SOURCE OOC_VERSION="${PROJECT_VERSION}"
  OOC_ENABLE_FAULTS=$<BOOL:${OOC_FAULTS}>)
if(OOC_SANITIZE)
  target_compile_options(ooc_flags INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${OOC_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  target_link_options(ooc_flags INTERFACE -fsanitize=${OOC_SANITIZE})
endif()
if(OOC_FUZZ)
  target_compile_options(ooc_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
endif()
# The pool is libgomp's where gcc compiles, since oneDNN brings it anyway. Clang would bring a second
# OpenMP runtime, and the thread sanitizer does not know libgomp: both get the pthread body.
# So does the Python package (python/CMakeLists.txt), which asks for it.
if(OOC_SANITIZE STREQUAL "thread" OR NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(OOC_PTHREAD_POOL ON)
endif()
if(OOC_PTHREAD_POOL)
  target_compile_definitions(ooc_flags INTERFACE OOC_PARALLEL_PTHREADS=1)
else()
  target_compile_definitions(ooc_flags INTERFACE OOC_PARALLEL_PTHREADS=0)
endif()

function(ooc_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC ooc_flags)
endfunction()
