# find_package(llm): the targets llm::llm (shared, or static where llm_USE_STATIC_LIBS is set) and llm::llm_static.
include(CMakeFindDependencyMacro)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_dependency(Threads)
get_filename_component(_llm_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET llm::llm_static)
    add_library(llm::llm_static STATIC IMPORTED)
    set_target_properties(llm::llm_static PROPERTIES
        IMPORTED_LOCATION "${_llm_prefix}/lib/libllm.a"
        IMPORTED_LINK_INTERFACE_LANGUAGES C
        INTERFACE_INCLUDE_DIRECTORIES "${_llm_prefix}/include"
        INTERFACE_LINK_LIBRARIES "Threads::Threads;m;${CMAKE_DL_LIBS}")
endif()
if(NOT TARGET llm::llm)
    if(llm_USE_STATIC_LIBS)
        add_library(llm::llm INTERFACE IMPORTED)
        set_target_properties(llm::llm PROPERTIES INTERFACE_LINK_LIBRARIES llm::llm_static)
    else()
        add_library(llm::llm SHARED IMPORTED)
        set_target_properties(llm::llm PROPERTIES
            IMPORTED_LOCATION "${_llm_prefix}/lib/libllm.so"
            IMPORTED_SONAME "libllm.so.0"
            INTERFACE_INCLUDE_DIRECTORIES "${_llm_prefix}/include")
    endif()
endif()
unset(_llm_prefix)
